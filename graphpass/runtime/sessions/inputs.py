"""Feed the inputs of a model at one step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.step_tokens import StepTokens, find_step_tokens
from graphpass.errors import UnsupportedError
from graphpass.ir.cache import Axes, Cache, Inventory
from graphpass.ir.element_types import ELEMENT_TYPES
from graphpass.ir.inputs import (
    BRANCH,
    EMBEDDINGS,
    NEW_SLOTS,
    PAST_LENGTH,
    SOURCE_SLOTS,
    TARGET_STATES,
    VISUAL_FEATURES,
    VISUAL_MASK,
)
from graphpass.ir.model import Model
from graphpass.ir.types import Port, is_fixed, shape_text

Array: TypeAlias = NDArray[Any]

#: Names of inputs for token ids.
TOKENS = ("input_ids", "decoder_input_ids")

_NONE = np.zeros(0, np.int64)

#: Largest number of tokens of an input of fixed sizes; declarations of a damaged model may require any memory.
_MOST_TOKENS = 2**24

#: Ranks of inputs that are not [batch, length]. An input of this name and another rank has another meaning.
_RANKS = {
    **dict.fromkeys(("cache_position", "beam_idx", SOURCE_SLOTS, PAST_LENGTH, "steps_back", BRANCH), (1,)),
    **dict.fromkeys(("tree_mask", EMBEDDINGS, TARGET_STATES, VISUAL_FEATURES), (3,)),
    "position_ids": (2, 3),
}


@dataclass(frozen=True, slots=True)
class StepInputs:
    """The inputs of one step, independent of the model's names.

    Attributes:
        input_ids: int64 [batch, length], the new tokens, or hashes of their embeddings.
        attention_mask: int64 [batch, past + length], 0 for padding.
        position_ids: int64 [batch, length], or [axes, batch, length].
        past: Number of positions in the caches.
        rows: int64 [batch], the row of the caches that each row continues; ``None`` if each continues its own.
        tree_mask: f32 [1, length, length], a bias on the scores between new tokens; ``None`` for zeros.
        moves: Source and destination slots of a reorder before the step, int64 [n] each.
        steps_back: Number of steps that the model undoes in its linear caches before this one.
        embeddings: f32 [batch, length, hidden], the new tokens for input ``inputs_embeds``, each with its visual
            features, zeros for text; or states of a target for input ``hidden_states``, each followed by the token id.
    """

    input_ids: NDArray[np.int64]
    attention_mask: NDArray[np.int64]
    position_ids: NDArray[np.int64]
    past: int
    rows: NDArray[np.int64] | None = None
    tree_mask: NDArray[np.float32] | None = None
    moves: tuple[NDArray[np.int64], NDArray[np.int64]] = field(default_factory=lambda: (_NONE, _NONE))
    steps_back: int = 0
    embeddings: NDArray[np.float32] | None = None

    @property
    def batch(self) -> int:
        """Return the number of rows."""
        return int(self.input_ids.shape[0])

    @property
    def length(self) -> int:
        """Return the number of new tokens per row."""
        return int(self.input_ids.shape[1])


class InputPlan:
    """Feeds of all inputs of one model other than caches.

    Attributes:
        batch: Fixed batch size; ``None`` if it is dynamic.
        reads_mask: Whether the model has an input ``attention_mask``.
        takes_mask: Whether it can exclude padding at all positions.
        takes_rows: Whether the model can gather rows of its caches (``beam_idx``).
        counts_past: Whether an input counts the positions before the step, as with caches of fixed capacity.
        takes_tree: Whether the model has input ``tree_mask``, which hides new tokens from each other.
        takes_moves: Whether the model can move entries of its growing caches, and drop the last ones.
        takes_embeddings: Whether tokens are fed as embeddings or other rows, not as ids.
        hidden: Fixed size of a token's row, its embedding and visual features, or a target's states and the id;
            ``None`` if it is dynamic.
        levels: Number of visual features, each of the size of an embedding.
        states: Number of elements of a target's states in a token's row, before its id; 0 for other models.
        axes: Leading axes of positions: ``(3,)`` for time, height and width; ``()`` for one position per token.
    """

    def __init__(self, ports: Iterable[Port], inventory: Inventory, step_tokens: StepTokens | None = None) -> None:
        """Plan the feeds.

        Args:
            ports: The model's inputs.
            inventory: The model's caches; the session feeds those that are inputs.
            step_tokens: The tokens that the model accepts at one step; by default without restrictions.

        Raises:
            UnsupportedError: GP320, an input cannot be fed, or there is no input for tokens.
        """
        reads = set() if inventory.stateful else {cache.read for cache in inventory.caches}
        fed = {port.name: port for port in ports if port.name not in reads}
        step_tokens = step_tokens or StepTokens()
        linear = inventory.kind == "linear"
        tokens = next((fed[name] for name in (*TOKENS, EMBEDDINGS) if name in fed), None)
        self.takes_embeddings = tokens is not None and tokens.name == EMBEDDINGS
        if tokens is not None and tokens.shape is not None and len(tokens.shape) == 1 + self.takes_embeddings:
            message = f"input {tokens.name} {shape_text(tokens.shape)} packs the tokens of all rows into one axis"
            hint = "if its attention is PagedAttention: graphpass run MODEL -p unpage-caches -o OUT"
            raise UnsupportedError("GP320", message, hint)
        makers = _makers(inventory, step_tokens, embeddings=self.takes_embeddings)
        self.states = 0 if self.takes_embeddings else step_tokens.states
        sizes = [size if isinstance(size, int) else None for size in (tokens and tokens.shape) or (None, None, None)]
        hidden = sizes[2] if self.takes_embeddings else None
        self.levels = step_tokens.levels if hidden is not None else 0
        self.hidden = hidden if hidden is None else hidden * (1 + self.levels)
        if hidden is not None and self.levels:
            makers |= _visual_makers(hidden, self.levels)
        if self.states:
            makers |= _draft_makers()
            self.takes_embeddings, self.hidden = True, self.states + 1
        self._feeds = [
            (
                port.name,
                _maker_for(port, makers, inventory, step_tokens),
                numpy_type(port.element_type, f"input {port.name}"),
            )
            for port in fed.values()
        ]
        if tokens is None:
            names = f"{TOKENS[0]} or {EMBEDDINGS}"
            raise UnsupportedError("GP320", f"no input accepts token ids or embeddings: none is called {names}")
        self.batch, self._length = sizes[:2]
        if (self.batch or 1) * (self._length or 1) > _MOST_TOKENS:
            message = f"input {tokens.name} {shape_text(tokens.shape)} has more than {_MOST_TOKENS:,} tokens"
            raise UnsupportedError("GP320", message, "declare the sizes that the model is run with")
        positions = fed["position_ids"].shape or () if "position_ids" in fed else ()
        self.axes = tuple(size for size in positions[:-2] if isinstance(size, int))
        self.reads_mask = "attention_mask" in fed
        self.takes_mask = self.reads_mask and (linear or not step_tokens.masks_new_tokens)
        destinations = [port for name, port in fed.items() if name.startswith(NEW_SLOTS)]
        self.takes_moves = SOURCE_SLOTS in fed and bool(destinations)
        # GPU plugins that move entries of a cache do not gather its rows.
        self.takes_rows = "beam_idx" in fed and all(len(port.shape or ()) == 1 for port in destinations)
        self.takes_tree = "tree_mask" in fed
        self.counts_past = bool(step_tokens.counters)
        self._one_by_one, self._rows_one_by_one = step_tokens.one_by_one, step_tokens.rows_one_by_one

    def tokens_at_once(self, past: int, length: int, rows: int) -> int:
        """Return the number of tokens per run.

        Args:
            past: Number of entries in the caches.
            length: Number of new tokens of each row.
            rows: Number of rows; some models accept one new token at a time for several.
        """
        if self._length is not None:
            return self._length
        one_by_one = self._one_by_one or (self._rows_one_by_one and rows > 1)
        return 1 if past and one_by_one else length

    def feeds(self, step: StepInputs) -> dict[str, Array]:
        """Return an array for each input, in its declared element type."""
        return {name: make(step).astype(dtype, copy=False) for name, make, dtype in self._feeds}


def numpy_type(element_type: str, owner: str) -> np.dtype[Any]:
    """Return the numpy type of an element type.

    Args:
        element_type: OpenVINO's name: ``"f16"``.
        owner: Name of the tensor in the message: ``"input position_ids"``.

    Raises:
        UnsupportedError: GP320, numpy does not have the type.
    """
    known = ELEMENT_TYPES.get(element_type)
    if known is None or known.dtype is None:
        raise UnsupportedError("GP320", f"{owner} is of type {element_type}, which cannot be fed")
    return np.dtype(known.dtype)


def require_written(cache: Cache) -> None:
    """Raise if the model only reads a cache.

    Raises:
        UnsupportedError: GP320, another model has to compute the cache.
    """
    if cache.write is None:
        raise UnsupportedError("GP320", f"cache {cache.name} is only read: another model has to compute it")


def _makers(
    inventory: Inventory, step_tokens: StepTokens, *, embeddings: bool
) -> dict[str, Callable[[StepInputs], Array]]:
    linear = inventory.kind == "linear"
    masks_new = linear or step_tokens.masks_new_tokens
    makers: dict[str, Callable[[StepInputs], Array]] = {
        **dict.fromkeys(TOKENS, lambda step: step.input_ids),
        # Without growing caches, the mask covers the new tokens only.
        "attention_mask": lambda step: step.attention_mask[:, step.past if masks_new else 0 :],
        "position_ids": lambda step: step.position_ids,
        "token_type_ids": lambda step: np.zeros_like(step.input_ids),
        "beam_idx": lambda step: np.arange(step.batch, dtype=np.int32) if step.rows is None else step.rows,
        "tree_mask": lambda step: np.zeros((1, 0, 0)) if step.tree_mask is None else step.tree_mask,
        SOURCE_SLOTS: lambda step: step.moves[0],
        "steps_back": lambda step: np.array([step.steps_back]),
        "past_len": lambda step: np.array([step.past]),
        BRANCH: lambda step: np.array([step.past > 0]),
        **dict.fromkeys(step_tokens.starts, lambda step: np.full(step.batch, step.past)),
        **dict.fromkeys(step_tokens.totals, lambda step: np.full(step.batch, step.past + step.length)),
    }
    if embeddings:
        makers[EMBEDDINGS] = _embeddings_of
    if not linear:
        makers["cache_position"] = lambda step: np.arange(step.past, step.past + step.length)
    elif (window := _convolution_window(inventory, step_tokens.packed_windows)) is not None:
        # Transformers' convolution caches read cache_position as columns of the window: all columns in a prefill of any
        # length, the last column in a decode step.
        slots = np.arange(window)
        makers["cache_position"] = lambda step: slots[-1:] if step.past else slots
    return makers


def _embeddings_of(step: StepInputs) -> Array:
    assert step.embeddings is not None
    return step.embeddings


def _visual_makers(hidden: int, levels: int) -> dict[str, Callable[[StepInputs], Array]]:
    """Return the feeds of a model that reads embeddings and visual features of ``hidden`` elements."""

    def parts(step: StepInputs) -> Array:
        rows = _embeddings_of(step)
        return rows.reshape(*rows.shape[:2], 1 + levels, hidden)

    def is_visual(step: StepInputs) -> Array:
        return np.asarray(parts(step)[:, :, 1:].any(axis=(2, 3)))

    def features(step: StepInputs) -> Array:
        # openvino.genai feeds one row of zeros if no token is visual; models index the last row for text.
        chosen = parts(step)[is_visual(step), 1:]
        return np.swapaxes(chosen if len(chosen) else np.zeros((1, levels, hidden)), 0, 1)

    return {EMBEDDINGS: lambda step: parts(step)[:, :, 0], VISUAL_MASK: is_visual, VISUAL_FEATURES: features}


def _draft_makers() -> dict[str, Callable[[StepInputs], Array]]:
    """Return the feeds of a model that reads states of a target and token ids."""
    return {
        TARGET_STATES: lambda step: _embeddings_of(step)[:, :, :-1],
        **dict.fromkeys(TOKENS, lambda step: _embeddings_of(step)[:, :, -1]),
    }


def _convolution_window(inventory: Inventory, packed: Iterable[int]) -> int | None:
    windows = {*packed, *(cache.shape[-1] for cache in inventory.caches if cache.role == "conv" and cache.shape)}
    size = windows.pop() if len(windows) == 1 else None
    return size if isinstance(size, int) else None


def _maker_for(
    port: Port, makers: dict[str, Callable[[StepInputs], Array]], inventory: Inventory, step_tokens: StepTokens
) -> Callable[[StepInputs], Array]:
    if port.name.startswith(NEW_SLOTS) and port.shape is not None:
        return _destinations(port, port.shape, inventory)
    if port.name not in makers and _chooses_nothing(port, step_tokens):
        content = np.zeros(cast("tuple[int, ...]", port.shape))
        return lambda _step: content
    if port.name in step_tokens.counters:
        sizes = cast("tuple[int, ...]", port.shape)
        return lambda step: np.full(sizes, step.past)
    expected = (1,) if port.name in step_tokens.starts | step_tokens.totals else _RANKS.get(port.name, (2,))
    is_fed = port.shape is None or (
        len(port.shape) in expected and not (port.name == "position_ids" and _has_open_axes(port.shape))
    )
    if port.name not in makers or not is_fed:
        raise UnsupportedError(
            "GP320",
            f"cannot determine what to feed to input {port.name} {shape_text(port.shape)} of type {port.element_type}",
            "sessions feed tokens, embeddings, masks, positions, beam and reorder indices by their conventional names, "
            "which the pass name-ports restores, and caches; "
            f"if the input is a setting, replace it by a constant first: graphpass run MODEL -p "
            f"'fix-input{{input={port.name},value=0}}' -o OUT",
        )
    return makers[port.name]


def idle_inputs(model: Model) -> tuple[str, ...]:
    """Return the inputs of fixed size to which zeros are fed."""
    step_tokens = find_step_tokens(model, analyze_caches(model))
    return tuple(port.name for port in model.inputs if _chooses_nothing(port, step_tokens))


def _chooses_nothing(port: Port, step_tokens: StepTokens) -> bool:
    return is_fixed(port.shape) and port.name in step_tokens.passed_on | step_tokens.kept


def _has_open_axes(positions: tuple[int | str | None, ...]) -> bool:
    """Return whether the number of positions per token is dynamic."""
    return any(not isinstance(size, int) for size in positions[:-2])


def _destinations(
    port: Port, shape: tuple[int | str | None, ...], inventory: Inventory
) -> Callable[[StepInputs], Array]:
    """Return the feed of a ``dst_idx``: ``[n]``, or a cache's shape with ``n`` entries."""
    if len(shape) == 1:
        return lambda step: step.moves[1]
    axes = next((cache.axes for cache in inventory.of_kind("kv") if _is_laid_out_as(cache, shape)), Axes(batch=0))

    def slots(step: StepInputs) -> Array:
        count = len(step.moves[1])
        if count and axes.sequence is None:
            message = f"expected a cache of the layout of {port.name} {shape_text(shape)}, found none"
            raise UnsupportedError("GP320", message)
        sizes = [size if isinstance(size, int) else 0 for size in shape]
        if axes.batch is not None and not isinstance(shape[axes.batch], int):
            sizes[axes.batch] = step.batch
        if axes.sequence is None:
            return np.zeros(sizes)
        sizes[axes.sequence] = count
        along = [count if axis == axes.sequence else 1 for axis in range(len(sizes))]
        return np.broadcast_to(step.moves[1].reshape(along), sizes)

    return slots


def _is_laid_out_as(cache: Cache, shape: tuple[int | str | None, ...]) -> bool:
    free = {cache.axes.batch, cache.axes.sequence}
    return (
        cache.shape is not None
        and len(cache.shape) == len(shape)
        and all(
            axis in free if not isinstance(size, int) else size == cache.shape[axis] or axis == cache.axes.batch
            for axis, size in enumerate(shape)
        )
    )
