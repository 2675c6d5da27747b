"""Verify drafts in steps of the target model."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from graphpass.errors import UnsupportedError, UsageError
from graphpass.runtime.sessions.inputs import Array
from graphpass.runtime.sessions.session import DecodeSession
from graphpass.runtime.speculative.tree import DraftTree


class Drafter(Protocol):
    """A source of drafts."""

    def propose(self, history: Sequence[int]) -> Sequence[Sequence[int]]:
        """Return draft continuations of ``history``.

        One continuation is verified as a chain, several as a tree with shared prefixes.
        """
        ...


@runtime_checkable
class StateDrafter(Drafter, Protocol):
    """A drafter that reads hidden states of the target."""

    def observe(self, first: int, states: Mapping[int, Array]) -> None:
        """Receive hidden states of accepted tokens, before `propose` is called.

        Args:
            first: Position of the first token; 0 begins another text.
            states: f32 [n, hidden] by layer.
        """
        ...


@dataclass(frozen=True, slots=True)
class Speculation:
    """The result of `speculate`.

    Attributes:
        tokens: The generated ids, without the prompt.
        drafted: Number of draft tokens, in all branches of trees.
        accepted: Number of draft tokens that equal the target's choice.
        target_steps: Steps of the target after the prefill; without drafts, one less than the number of tokens.

    Examples:
        >>> from graphpass.runtime.speculative import Speculation
        >>> Speculation(tokens=(3, 5, 8), drafted=4, accepted=1, target_steps=2).acceptance
        0.25
    """

    tokens: tuple[int, ...]
    drafted: int
    accepted: int
    target_steps: int

    @property
    def acceptance(self) -> float:
        """Return the share of draft tokens that were accepted, 0 to 1."""
        return self.accepted / self.drafted if self.drafted else 0.0


def speculate(
    target: DecodeSession, prompt: Sequence[int], drafter: Drafter, *, count: int, stop: Collection[int] = ()
) -> Speculation:
    """Generate the greedy choice of ``target``, verifying drafts in its steps.

    Afterwards the session has the prompt and all generated tokens except the last, as after plain decoding.

    Args:
        target: The target model's session, which is reset first.
        prompt: Token ids of one sequence.
        drafter: The source of drafts.
        count: Number of tokens to generate.
        stop: Ids that end the generation.

    Returns:
        The tokens, the number of target steps, and the share of accepted drafts.

    Raises:
        UsageError: GP261, ``count`` is not positive; GP262, the drafter returned an id outside the target's vocabulary.
        UnsupportedError: GP375, the target returns logits of the last position only; GP377, the drafter requires hidden
            states, which the target does not return.

    Examples:
        >>> from graphpass.runtime import open_session
        >>> from graphpass.runtime.speculative import PromptLookup, speculate
        >>> from graphpass.testing import tiny_model
        >>> speculation = speculate(open_session(tiny_model("llama")), [1, 5, 9], PromptLookup(), count=4)
        >>> len(speculation.tokens)
        4
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
        room = end - len(tokens) - 1  # a step generates one token more than it accepts
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
        raise UsageError("GP262", f"the draft has id {unknown}, the target's vocabulary only ids below {vocabulary}")
    logits = target.step([draft.tokens], parents=None if draft.is_chain else draft.parents)[0]
    if len(logits) != len(draft.tokens):
        raise UnsupportedError(
            "GP375",
            f"output {target.logits_output} has logits of {len(logits)} of {len(draft.tokens)} positions, "
            "so drafts cannot be verified",
            "export the model with the logits of all positions",
        )
    return [int(token) for token in logits.argmax(axis=-1)]


def _keep(target: DecodeSession, length: int, path: Sequence[int]) -> None:
    moves = [(length + node, length + depth) for depth, node in enumerate(path) if node != depth]
    if moves:
        target.reorder([source for source, _ in moves], [slot for _, slot in moves])
    target.rewind(length + len(path))
