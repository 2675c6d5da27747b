"""Decode step by step: feed tokens, return logits, and edit caches between steps."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphpass.analysis.caches.encoders import is_pooled, pooled_outputs
from graphpass.analysis.caches.last_logits import gives_one_token
from graphpass.errors import UnsupportedError, UsageError
from graphpass.ir.inputs import HIDDEN_STATES
from graphpass.runtime.sessions.cache_store import CacheStore
from graphpass.runtime.sessions.checkpoints import Checkpoint, Snapshot
from graphpass.runtime.sessions.editing import EditableSession
from graphpass.runtime.sessions.embeddings import Embed
from graphpass.runtime.sessions.inputs import Array, StepInputs
from graphpass.runtime.sessions.runs import cut_runs
from graphpass.runtime.sessions.saved import SavedOrigin, SavedState, model_digest, read_state, write_state
from graphpass.runtime.sessions.slots import Slots
from graphpass.runtime.sessions.tokens import Tokens, newest
from graphpass.runtime.sessions.trees import checked_parents, depths, is_chain, tree_mask

#: Largest number of owed tokens in one step with new tokens. More are fed before, so that a checkpoint can be added.
_MOST_OWED = 8


class DecodeSession(EditableSession):
    """One model in one runtime, with the caches of the tokens so far.

    Slots 0 to ``length - 1`` are the positions in the order of attention; the session maps them to memory. After an
    edit the caches equal a recomputation from scratch; otherwise it raises.

    A call that raises `UnsupportedError` may leave the caches inconsistent; `reset` makes the session usable again.

    Attributes:
        outputs: Names of the outputs other than caches and inputs that are returned unchanged.
        has_caches: Whether the model has caches; otherwise each step recomputes the whole sequence.
        fixed_batch: The fixed batch size; ``None`` if it is dynamic.
        takes_mask: Whether an ``attention_mask`` of all positions can exclude padding.
        last_only: Whether a step returns logits of its last token only, as models of static shapes do.
        pooled: Outputs of an encoder with one entry for all tokens, returned as [batch, 1, size].
        takes_tree: Whether the model has input ``tree_mask``, which hides new tokens from each other.
        takes_embeddings: Whether tokens are fed as embeddings; ids require `embed_with`.
        visual_levels: Number of visual features of a token; they follow its embedding, and are 0 if omitted.
        state_size: Number of elements of a target's states that a draft reads with a token. Rows of states, each
            followed by the token's id, replace embeddings. 0 for other models.
        axes: Leading axes of positions: ``(3,)`` for time, height and width; ``()`` for one position per token.
        moves_slots: Whether slots may be reordered even if a recomputation has other results.
        takes_any_positions: Whether positions may differ from the numbers of their slots.

    Examples:
        >>> from graphpass.runtime import open_session
        >>> from graphpass.testing import tiny_model
        >>> session = open_session(tiny_model("llama"))
        >>> logits = session.prefill([1, 5, 9])
        >>> kept = session.snapshot()
        >>> session.step([7]).shape
        (1, 1, 64)
        >>> session.restore(kept)
        >>> session.length
        3
    """

    def __init__(self, store: CacheStore) -> None:
        """Begin without tokens."""
        super().__init__(store)
        self.outputs = store.outputs
        self.has_caches = bool(store.inventory.caches)
        self.pooled = pooled_outputs(store.model)
        self.last_only = store.last_only or gives_one_token(store.model) or is_pooled(store.model)
        self.fixed_batch = self._inputs.batch
        self.takes_mask = store.takes_mask
        self.takes_tree = self._inputs.takes_tree
        self.takes_embeddings = self._inputs.takes_embeddings
        self.visual_levels, self.state_size = self._inputs.levels, self._inputs.states
        self.axes = self._inputs.axes
        self.moves_slots, self.takes_any_positions = store.moves_slots, store.takes_any_positions

    @property
    def logits_output(self) -> str:
        """Return the name of the output with the logits; see `CacheStore.logits_output`."""
        return self.store.logits_output

    @property
    def logits(self) -> Array:
        """Return the logits of the last forward pass, [batch, length, vocabulary].

        The second dimension is 1 if the model returns only the last position's logits.

        Raises:
            UsageError: GP243, there was no forward pass yet.
            UnsupportedError: GP324, none of several outputs is called ``logits``, or it has other axes.
        """
        if not self._last:
            raise UsageError("GP243", "there are no logits before the first forward pass")
        name = self.logits_output
        logits = self._last[name]
        if logits.ndim != 3:
            raise UnsupportedError("GP324", f"output {name} is {list(logits.shape)}, not [batch, length, vocabulary]")
        return logits

    @property
    def hidden_states(self) -> dict[int, Array]:
        """Return the residual stream of the last forward pass by layer, f32 [batch, length, hidden].

        Raises:
            UsageError: GP243, there was no forward pass yet.
            UnsupportedError: GP377, the model does not return hidden states.
        """
        names = [name for name in self.outputs if name.startswith(HIDDEN_STATES)]
        if not names:
            hint = "run the pass expose-hidden-states on it"
            raise UnsupportedError("GP377", "the model does not return hidden states", hint)
        if not self._last:
            raise UsageError("GP243", "there are no hidden states before the first forward pass")
        return {int(name.removeprefix(HIDDEN_STATES)): self._last[name] for name in names}

    def prefill(
        self, ids: ArrayLike, attention_mask: ArrayLike | None = None, position_ids: ArrayLike | None = None
    ) -> Array:
        """Reset the session, then feed a prompt.

        Args:
            ids: Token ids [batch, length], or [length] for one sequence; for models with input ``inputs_embeds``,
                embeddings [batch, length, hidden] or [length, hidden].
            attention_mask: [batch, length], 0 for padding; all ones by default.
            position_ids: As `forward`.

        Returns:
            The prompt's logits, as `logits`.

        Raises:
            UsageError: As `forward`.
            UnsupportedError: As `forward`.
        """
        tokens = self._reader.in_rows(ids)
        self.store.check_room(tokens.shape[1] if tokens.ndim > 1 else 0, 0)
        self.reset()
        self.forward(tokens, attention_mask, position_ids)
        return self.logits

    def step(self, ids: ArrayLike, *, parents: ArrayLike | None = None) -> Array:
        """Feed the next tokens.

        Args:
            ids: Token ids [batch, length], or [batch] for one token each; for models with input ``inputs_embeds``,
                embeddings [batch, length, hidden] or [batch, hidden].
            parents: As `forward`.

        Returns:
            Logits of these tokens, as `logits`.

        Raises:
            UsageError: As `forward`.
            UnsupportedError: As `forward`.
        """
        self.forward(self._reader.in_rows(ids, one_each=True), parents=parents)
        return self.logits

    def forward(
        self,
        input_ids: ArrayLike,
        attention_mask: ArrayLike | None = None,
        position_ids: ArrayLike | None = None,
        *,
        parents: ArrayLike | None = None,
    ) -> dict[str, Array]:
        """Run the model on new tokens.

        A model with a fixed number of tokens runs several times, and its outputs are concatenated along axis 1.

        Args:
            input_ids: int64 [batch, length], the new tokens; f32 [batch, length, hidden] for ``inputs_embeds``.
            attention_mask: int64 [batch, past + length], 0 for ignored positions; by default unchanged for the past,
                and 1 for the new tokens.
            position_ids: int64 [batch, length]; by default the number of unmasked positions before each token. For
                models with several positions for each token, [axes, batch, length]; by default all continue from the
                largest position so far.
            parents: For a tree, the index of each token's parent among the new tokens, or -1 for the history; parents
                precede their children. By default, each token is the parent of the next.

        Returns:
            All outputs that are not caches, by name.

        Raises:
            UsageError: GP241, a shape does not fit; GP242, the batch differs from that of the caches; GP247,
                ``parents`` is not a tree; GP267, the tokens exceed the capacity of the caches, which are unchanged.
            UnsupportedError: GP322, the runtime failed; GP323, the model requires another number of tokens; GP371, the
                model does not support trees; GP379, it cannot exclude padding at these positions.
        """
        ids = self._checked(input_ids)
        self.store.check_room(ids.shape[1], self.length)
        tree = None if parents is None else self._tree(parents, ids.shape[1])
        if attention_mask is not None:
            self.store.check_mask(attention_mask)
        new = self._new_tokens(ids, attention_mask, position_ids, tree)
        self.store.check_positions(new, self.length)
        if self._slots is None:
            self._slots = Slots(len(new.ids), self._inputs.axes)
        elif self.store.must_replay(self._slots, self._compaction):
            self._owe_all()
        if self._owed is not None and (tree is not None or self._owed.length > _MOST_OWED or self._must_keep_state()):
            self._pay()
        fed = new if self._owed is None else self._owed.then(new)
        runs = cut_runs(self.store, self._slots, fed)
        if tree is not None and len(runs) > 1:
            message = f"a tree requires one step, but the model accepts only {runs[0]} tokens at a time"
            raise UnsupportedError("GP371", message)
        results = self._feed(fed, runs, tree)
        self._last = newest(results, runs, new.length)
        return self._last

    def embed_with(self, embed: Embed) -> None:
        """Accept token ids as well, from now on.

        Args:
            embed: Maps ids int64 [batch, length] to embeddings f32 [batch, length, hidden]; see
                `graphpass.runtime.text_embeddings`.

        Raises:
            UsageError: GP240, the model has an input for token ids.
        """
        self._reader.embed_with(embed)

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the session, for `restore`.

        Raises:
            UsageError: GP243, there was no forward pass yet.
            UnsupportedError: GP370, the model has caches that cannot be edited; GP322 as `forward`.
        """
        if self._slots is None:
            raise UsageError("GP243", "a session cannot be copied before its first forward pass")
        self.store.check_editable()
        if self.store.must_replay(self._slots, self._compaction):
            self._owe_all()
        if self._owed is not None:
            self._pay()
        slots = self._slots
        if self.store.growing_sealed:
            self._check_history(slots)
        is_kept = self.store.growing_sealed and self._rows is not None
        is_sealed = is_kept or (self.store.fixed_sealed and self.store.fixed)
        if not is_sealed:
            self._settle_rows()
        kept = Snapshot(
            slots.length,
            self._life,
            slots.state() if slots.length and not is_sealed else None,
            slots.tokens(),
            slots.origins,
            self.store.read_fixed(self._rows) if slots.length and not is_sealed else {},
            self._checkpoints.kept,
            self._last,
        )
        self._snapshots.add(kept)
        return kept

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write tokens, caches and adapter weights to a safetensors file atomically.

        `load` and ``open_session(..., state=path)`` continue from the file, in other processes as well. Checkpoints are
        not saved: rewinding linear caches to before the saved length recomputes all tokens.

        Args:
            path: The file, replaced if it exists.

        Raises:
            UsageError: GP243, there are no tokens yet.
            UnsupportedError: GP370, the runtime does not expose the caches, or they cannot be edited; GP322 as
                `forward`.
            WriteError: GP501, the file system reports an error.
        """
        if not self.length:
            raise UsageError("GP243", "there is nothing to save before the first forward pass")
        kept, grown = self._exposed()
        adapters = {cache.name: self.store.read(cache) for cache in self.store.adapters}
        self.store.bytes_copied += sum(value.nbytes for value in adapters.values())
        caches = {**kept.states, **grown, **adapters}
        embeddings = self._reader.embeddings(kept.tokens.ids)
        write_state(Path(path), SavedState(kept.tokens, kept.origins, caches, embeddings), self._origin)

    def contents(self) -> dict[str, Array]:
        """Return copies of the growing caches by name, with entries in the order of slots.

        Returns:
            Arrays in the axes and element type of each cache, with `length` entries along the sequence axis.

        Raises:
            UsageError: GP243, there are no tokens yet.
            UnsupportedError: GP370, the runtime does not expose the caches, or they cannot be edited; GP322 as
                `forward`.
        """
        return self._exposed()[1]

    def _exposed(self) -> tuple[Snapshot, dict[str, Array]]:
        """Return a snapshot, and copies of the growing caches by name."""
        self._check_handed_out()
        self._settle_rows()
        kept = self.snapshot()
        assert kept.slots is not None
        return kept, self.store.read_growing(kept.slots.entries)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Reset the session, then continue from a state that `save` wrote.

        `logits` raises until the next forward pass.

        Args:
            path: The file.

        Raises:
            ReadError: GP117, the file is missing, damaged or not a saved state.
            UsageError: GP252, the state was saved by a session of another model, or with other settings; GP267, its
                tokens exceed the capacity of the caches.
            UnsupportedError: GP370, the runtime does not expose its caches.
        """
        self._check_handed_out()
        others = (*self.store.fixed, *self.store.adapters)
        state = read_state(Path(path), self.store.growing, others, self._origin, self._inputs)
        self.store.check_room(state.tokens.length, 0)
        self.reset()
        if state.embeddings is not None:
            self._reader.ids(state.embeddings, "a saved state")
        self._slots = Slots.holding(state.tokens, state.origins)
        for cache in (*self.store.growing, *others):
            self.store.put(cache, state.caches[cache.name])

    @functools.cached_property
    def _origin(self) -> SavedOrigin:
        return SavedOrigin(model_digest(self.store.model), self.store.settings())

    def _checked(self, tokens: ArrayLike) -> NDArray[np.int64]:
        ids = self._reader.ids(tokens, "input_ids", self._ids_in_use)
        if self._slots is not None and len(ids) != self.batch:
            raise UsageError("GP242", f"the caches have a batch of {self.batch}, got {len(ids)}", "reset first")
        if self.fixed_batch not in (None, len(ids)):
            raise UsageError("GP242", f"the model has a fixed batch of {self.fixed_batch}, got {len(ids)}")
        return ids

    def _new_tokens(
        self,
        ids: NDArray[np.int64],
        attention_mask: ArrayLike | None,
        position_ids: ArrayLike | None,
        tree: NDArray[np.int64] | None,
    ) -> Tokens:
        mask = _ones(*ids.shape)
        if attention_mask is not None:
            whole = _shaped("attention_mask", attention_mask, (len(ids), self.length + ids.shape[1]))
            mask = whole[:, self.length :]
            self._mask_past(whole[:, : self.length])
        if position_ids is not None:
            return Tokens(ids, mask, self._reader.positions(position_ids, ids.shape))
        first = self._next_positions(len(ids))[:, None]
        if tree is not None:
            positions = first + depths(tree)
        elif attention_mask is not None:
            positions = np.maximum(first + mask.cumsum(axis=1) - 1, 0)
        else:
            positions = first if ids.shape[1] == 1 else first + np.arange(ids.shape[1])
        return Tokens(ids, mask, self._reader.positions(positions, ids.shape))

    def _next_positions(self, batch: int) -> NDArray[np.int64]:
        """Return the position of the next token of each row, int64 [batch]."""
        if self._slots is None:
            return np.zeros(batch, np.int64)
        if self._inputs.axes:
            # An image of many tokens takes as many positions as its longer side has patches.
            return self._slot_tokens().end
        return self._slots.counted if self._owed is None else self._slots.counted + self._owed.mask.sum(axis=1)

    def _mask_past(self, mask: NDArray[np.int64]) -> None:
        slots = self._slots
        if slots is None:
            return
        slots.mask_as(mask[:, : slots.length])
        if self._owed is not None:
            self._owed = Tokens(self._owed.ids, mask[:, slots.length :], self._owed.positions)

    def _tree(self, parents: ArrayLike, length: int) -> NDArray[np.int64] | None:
        checked = checked_parents(parents, length)
        if is_chain(checked):
            return None
        if self.store.fixed:
            reason = f"cannot store a tree: cache {self.store.fixed[0].name} has one state, not one per branch"
            raise UnsupportedError("GP371", reason, "draft a chain")
        if not self.takes_tree:
            message = "cannot store a tree: the model has no input tree_mask"
            raise UnsupportedError("GP371", message, "run the pass add-tree-mask on it")
        return checked

    def _feed(self, fed: Tokens, runs: Sequence[int], tree: NDArray[np.int64] | None = None) -> list[dict[str, Array]]:
        slots = self._slots
        assert slots is not None
        # A model that stores earlier states itself needs no checkpoint at every step.
        drafting = (fed.length > 1 or slots.length < self._drafting_until) and not self._steps.is_kept
        self._replayed += 0 if self._owed is None else self._owed.length
        self._owed = None
        hidden = None if tree is None else tree_mask(tree)
        replays = self.store.replays and not self.has_caches
        results: list[dict[str, Array]] = []
        start = 0
        for size in runs:
            back = self._steps.pending
            is_due = self.store.fixed and not (back or self.store.fixed_sealed)
            if is_due and self._checkpoints.are_due(slots.length, drafting=drafting):
                self._checkpoints.add(Checkpoint(slots.length, self.store.read_fixed(self._rows)))
            moves = self._arrange(slots)
            part = fed if size == fed.length else fed.part(start, start + size)
            past, length = slots.size, slots.length
            slots.append(part, tree)
            rows, self._rows = self._rows, None
            embedded = self._reader.embeddings(part.ids)
            step = StepInputs(part.ids, slots.visible, part.positions, past, rows, hidden, moves, back, embedded)
            results.append(self._replayed_step(slots, step) if replays else self.store.run(step))
            self._steps.step(length)
            start += size
        return results

    def _replayed_step(self, slots: Slots, step: StepInputs) -> dict[str, Array]:
        """Run the whole history.

        Returns:
            Outputs of the new tokens.
        """
        whole = slots.tokens()
        embedded = self._reader.embeddings(whole.ids)
        again = StepInputs(whole.ids, whole.mask, whole.positions, 0, tree_mask=step.tree_mask, embeddings=embedded)
        return newest([self.store.run(again)], [whole.length], step.length)

    def _must_keep_state(self) -> bool:
        assert self._slots is not None
        return self._steps.pending > 0 and self._checkpoints.are_due(self._slots.length, drafting=False)

    def _pay(self) -> None:
        assert self._owed is not None
        assert self._slots is not None
        self._feed(self._owed, cut_runs(self.store, self._slots, self._owed))


@functools.lru_cache(maxsize=8)
def _ones(batch: int, length: int) -> NDArray[np.int64]:
    """Return read-only ones, int64 [batch, length]; cached, since few shapes occur."""
    ones = np.ones((batch, length), np.int64)
    ones.flags.writeable = False
    return ones


def _shaped(name: str, values: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.int64]:
    array = np.asarray(values, np.int64)
    if array.shape != shape:
        raise UsageError("GP241", f"{name} must be {list(shape)}, but is {list(array.shape)}")
    return array
