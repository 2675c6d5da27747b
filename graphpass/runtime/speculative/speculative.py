"""Speculative decoding: several tokens are guessed, and one step of the model checks them all.

What comes out is what the model alone would choose greedily, token for token; the guesses only decide in how few steps.
It works on every `DecodeSession`: a guess that is wrong is rewound, and where several were checked at once as a tree,
the ones that hold are moved to where they belong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from graphpass.errors import UnsupportedError, UsageError
from graphpass.runtime.speculative.speculative_tree import DraftTree

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from graphpass.runtime.sessions.inputs import Array
    from graphpass.runtime.sessions.session import DecodeSession

__all__ = ["DraftModel", "Drafter", "PromptLookup", "Speculation", "speculate"]


class Drafter(Protocol):
    """Guesses what comes next."""

    def propose(self, history: Sequence[int]) -> Sequence[Sequence[int]]:
        """Continuations of ``history``, none of them needed to be right.

        One continuation is a chain. Several are checked together as a tree, in which common beginnings stand once.
        """
        ...


@dataclass(frozen=True, slots=True)
class Speculation:
    """What `speculate` generated, and how well the guesses were.

    Attributes:
        tokens: The generated ids, without the prompt.
        drafted: How many tokens were guessed, all branches of trees counted.
        accepted: How many of them the target would have chosen.
        target_steps: How often the target ran after the prefill; without guesses it would be one less than the tokens.
    """

    tokens: tuple[int, ...]
    drafted: int
    accepted: int
    target_steps: int

    @property
    def acceptance(self) -> float:
        """The accepted part of what was drafted, 0 to 1."""
        return self.accepted / self.drafted if self.drafted else 0.0


def speculate(
    target: DecodeSession, prompt: Sequence[int], drafter: Drafter, *, count: int, stop: Collection[int] = ()
) -> Speculation:
    """Generate what ``target`` chooses greedily, checking guesses in its steps.

    Afterwards the session holds the prompt and all generated tokens but the last one, as after plain decoding.

    Args:
        target: The model whose tokens are wanted; what it holds is forgotten.
        prompt: The ids of one sequence.
        drafter: Makes the guesses.
        count: How many tokens to generate.
        stop: Ids behind which nothing is generated.

    Returns:
        The tokens, and how many guesses held.

    Raises:
        UsageError: GP261, ``count`` is not positive; GP262, the drafter guessed an id that the target does not have.
        UnsupportedError: GP375, the model gives the logits of the last position only.
    """
    if count < 1:
        raise UsageError("GP261", f"{count} tokens cannot be generated")
    tokens = list(prompt)
    end = len(tokens) + count
    logits = target.prefill(tokens)
    tokens.append(int(logits[0, -1].argmax()))
    drafted = accepted = steps = 0
    while len(tokens) < end and tokens[-1] not in stop:
        room = end - len(tokens) - 1  # a step gives one token more than it accepts
        draft = DraftTree.of(tokens[-1], drafter.propose(tokens) if room else (), depth=room)
        held = target.length
        choices = _choices(target, draft, vocabulary=logits.shape[-1])
        path = draft.path(choices, stop)
        _keep(target, held, path)
        tokens += [choices[node] for node in path]
        drafted += len(draft.tokens) - 1
        accepted += len(path) - 1
        steps += 1
    return Speculation(tuple(tokens[len(prompt) :]), drafted, accepted, steps)


def _choices(target: DecodeSession, draft: DraftTree, vocabulary: int) -> list[int]:
    """What the target chooses behind each token of the draft."""
    unknown = next((token for token in draft.tokens if not 0 <= token < vocabulary), None)
    if unknown is not None:
        raise UsageError("GP262", f"the draft has id {unknown}, and the target's vocabulary ends before {vocabulary}")
    logits = target.step([draft.tokens], parents=None if draft.is_chain else draft.parents)[0]
    if len(logits) != len(draft.tokens):
        raise UnsupportedError(
            "GP375",
            f"output {target.logits_output} has logits of {len(logits)} of {len(draft.tokens)} positions, "
            "so guesses cannot be checked",
            "export the model with the logits of all positions",
        )
    return [int(token) for token in logits.argmax(axis=-1)]


def _keep(target: DecodeSession, held: int, path: Sequence[int]) -> None:
    """Of the new slots behind the first ``held``, keep those of ``path``, in its order."""
    moves = [(held + node, held + depth) for depth, node in enumerate(path) if node != depth]
    if moves:
        target.reorder([source for source, _ in moves], [slot for _, slot in moves])
    target.rewind(held + len(path))


@dataclass(frozen=True, slots=True)
class DraftModel:
    """Guesses by a smaller model with the same tokens.

    Attributes:
        session: The model; its caches follow the history, as far as that stays the same.
        length: How many tokens to guess, each one from the one before.
        width: How many of the likeliest tokens to guess at each place; only the first one is followed. With more than
            one, the draft is a tree.

    Raises:
        UsageError: GP263, a number is not positive.
    """

    session: DecodeSession
    length: int = 4
    width: int = 1

    def __post_init__(self) -> None:
        _check_positive(length=self.length, width=self.width)

    def propose(self, history: Sequence[int]) -> Sequence[Sequence[int]]:
        """The likeliest continuation, and those that part from it in their last token."""
        path: tuple[int, ...] = ()
        paths: list[tuple[int, ...]] = []
        logits = self.session.step(self.session.align(history))
        while True:
            likeliest = _likeliest(logits[0, -1], self.width)
            paths += [(*path, token) for token in likeliest]
            path = (*path, likeliest[0])
            if len(path) == self.length:
                return paths
            logits = self.session.step([path[-1:]])


def _check_positive(**numbers: int) -> None:
    """Raises GP263 where there is nothing to guess."""
    for name, number in numbers.items():
        if number < 1:
            raise UsageError("GP263", f"{name} must be at least 1, but is {number}")


def _likeliest(logits: Array, count: int) -> list[int]:
    return [int(token) for token in np.argsort(-logits, kind="stable")[:count]]


@dataclass(frozen=True, slots=True)
class PromptLookup:
    """Guesses that what followed the last tokens before follows them again; costs no model.

    Attributes:
        length: How many tokens to guess at most.
        ngram: How many tokens must have stood there before, at most; fewer are tried where none did.
        width: How many earlier places to look at, the latest first. With more than one, the draft may be a tree.

    Raises:
        UsageError: GP263, a number is not positive.
    """

    length: int = 4
    ngram: int = 3
    width: int = 1

    def __post_init__(self) -> None:
        _check_positive(length=self.length, ngram=self.ngram, width=self.width)

    def propose(self, history: Sequence[int]) -> Sequence[Sequence[int]]:
        """What stands behind earlier occurrences of the last tokens; nothing where there are none."""
        tokens = tuple(history)
        for size in range(min(self.ngram, len(tokens) - 1), 0, -1):
            behind = (end for end in range(len(tokens) - 1, size - 1, -1) if tokens[end - size : end] == tokens[-size:])
            paths = [tokens[end : end + self.length] for end, _ in zip(behind, range(self.width), strict=False)]
            if paths:
                return paths
        return []
