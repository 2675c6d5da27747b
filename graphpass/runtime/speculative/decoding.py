"""Check drafted tokens in steps of the target."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from graphpass.errors import UnsupportedError, UsageError
from graphpass.runtime.sessions.inputs import Array
from graphpass.runtime.sessions.session import DecodeSession
from graphpass.runtime.speculative.tree import DraftTree


class Drafter(Protocol):
    """Drafts the next tokens."""

    def propose(self, history: Sequence[int]) -> Sequence[Sequence[int]]:
        """Return draft continuations of ``history``.

        One continuation is verified as a chain, several as a tree with shared prefixes.
        """
        ...


@runtime_checkable
class StateDrafter(Drafter, Protocol):
    """Drafts by hidden states of the target."""

    def observe(self, first: int, states: Mapping[int, Array]) -> None:
        """Take the hidden states of accepted tokens, before `propose` is asked for what follows them.

        Args:
            first: Position of the first of them; 0 begins another text.
            states: f32 [n, hidden] by layer.
        """
        ...


@dataclass(frozen=True, slots=True)
class Speculation:
    """Holds the tokens of `speculate`, and counts drafted ones.

    Attributes:
        tokens: The generated ids, without the prompt.
        drafted: Number of drafted tokens, all branches of trees counted.
        accepted: Number of drafted tokens that the target would have chosen.
        target_steps: Runs of the target after the prefill; without drafts, one less than the tokens.
    """

    tokens: tuple[int, ...]
    drafted: int
    accepted: int
    target_steps: int

    @property
    def acceptance(self) -> float:
        """Return the accepted part of the drafted tokens, 0 to 1."""
        return self.accepted / self.drafted if self.drafted else 0.0


def speculate(
    target: DecodeSession, prompt: Sequence[int], drafter: Drafter, *, count: int, stop: Collection[int] = ()
) -> Speculation:
    """Generate the greedy choice of ``target``, checking drafts in its steps.

    Afterwards the session holds the prompt and all generated tokens but the last one, as after plain decoding.

    Args:
        target: The model whose tokens are wanted; it is reset first.
        prompt: The ids of one sequence.
        drafter: Makes the drafts.
        count: Number of tokens to generate.
        stop: Ids that end the generation.

    Returns:
        The tokens, the number of target steps, and the share of accepted drafts.

    Raises:
        UsageError: GP261, ``count`` is not positive; GP262, the drafter returned an id that the target does not have.
        UnsupportedError: GP375, the model gives the logits of the last position only; GP377, the drafter needs hidden
            states, and the model gives none.
    """
    if count < 1:
        raise UsageError("GP261", f"{count} tokens cannot be generated")
    tokens = list(prompt)
    end = len(tokens) + count
    logits = target.prefill(tokens)
    if isinstance(drafter, StateDrafter):
        drafter.observe(0, {layer: states[0] for layer, states in target.hidden_states.items()})
    tokens.append(int(logits[0, -1].argmax()))
    drafted = accepted = steps = 0
    while len(tokens) < end and tokens[-1] not in stop:
        room = end - len(tokens) - 1  # a step gives one token more than it accepts
        draft = DraftTree.of(tokens[-1], drafter.propose(tokens) if room else (), depth=room)
        length = target.length
        choices = _choices(target, draft, vocabulary=logits.shape[-1])
        path = draft.path(choices, stop)
        if isinstance(drafter, StateDrafter):
            drafter.observe(length, {layer: states[0, path] for layer, states in target.hidden_states.items()})
        _keep(target, length, path)
        tokens += [choices[node] for node in path]
        drafted += len(draft.tokens) - 1
        accepted += len(path) - 1
        steps += 1
    return Speculation(tuple(tokens[len(prompt) :]), drafted, accepted, steps)


def _choices(target: DecodeSession, draft: DraftTree, vocabulary: int) -> list[int]:
    unknown = next((token for token in draft.tokens if not 0 <= token < vocabulary), None)
    if unknown is not None:
        raise UsageError("GP262", f"the draft has id {unknown}, and the target's vocabulary ends before {vocabulary}")
    logits = target.step([draft.tokens], parents=None if draft.is_chain else draft.parents)[0]
    if len(logits) != len(draft.tokens):
        raise UnsupportedError(
            "GP375",
            f"output {target.logits_output} has logits of {len(logits)} of {len(draft.tokens)} positions, "
            "so drafts cannot be checked",
            "export the model with the logits of all positions",
        )
    return [int(token) for token in logits.argmax(axis=-1)]


def _keep(target: DecodeSession, length: int, path: Sequence[int]) -> None:
    moves = [(length + node, length + depth) for depth, node in enumerate(path) if node != depth]
    if moves:
        target.reorder([source for source, _ in moves], [slot for _, slot in moves])
    target.rewind(length + len(path))
