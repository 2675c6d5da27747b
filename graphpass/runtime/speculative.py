"""Speculative decoding: guess several tokens, and check them all in one step of the model.

The result is the model's own greedy choice, token for token; guesses only reduce the number of steps. Every
`DecodeSession` serves: wrong guesses are rewound, and of a tree the ones that hold are moved to their slots.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from graphpass.errors import UnsupportedError, UsageError
from graphpass.runtime.sessions.inputs import Array
from graphpass.runtime.sessions.session import DecodeSession


@dataclass(frozen=True, slots=True)
class DraftTree:
    """Holds guessed continuations as one tree of tokens, to feed in one step.

    Attributes:
        tokens: The ids; the first one is the last token of the history.
        parents: Index of the token before each; -1 for the first one.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]

    @classmethod
    def of(cls, last: int, continuations: Sequence[Sequence[int]], depth: int) -> DraftTree:
        """Join continuations, each cut to ``depth`` tokens; common beginnings stand once."""
        tokens, parents = [last], [-1]
        nodes: dict[tuple[int, int], int] = {}
        for continuation in continuations:
            parent = 0
            for token in continuation[:depth]:
                if (parent, token) not in nodes:
                    nodes[parent, token] = len(tokens)
                    tokens.append(token)
                    parents.append(parent)
                parent = nodes[parent, token]
        return cls(tuple(tokens), tuple(parents))

    @property
    def is_chain(self) -> bool:
        """Return whether each token follows the one before it."""
        return self.parents == tuple(range(-1, len(self.parents) - 1))

    def path(self, choices: Sequence[int], stop: Collection[int] = ()) -> list[int]:
        """Follow the model's choices from the first node, and return the path.

        Args:
            choices: The model's choice after each token.
            stop: Choices that end the path.
        """
        children = {pair: node for node, pair in enumerate(zip(self.parents, self.tokens, strict=True))}
        path = [0]
        while choices[path[-1]] not in stop and (path[-1], choices[path[-1]]) in children:
            path.append(children[path[-1], choices[path[-1]]])
        return path


class Drafter(Protocol):
    """Guesses the next tokens."""

    def propose(self, history: Sequence[int]) -> Sequence[Sequence[int]]:
        """Return continuations of ``history``, right or wrong.

        One continuation is a chain. Several are checked together as a tree, in which common beginnings stand once.
        """
        ...


@dataclass(frozen=True, slots=True)
class Speculation:
    """Holds the tokens of `speculate`, and counts its guesses.

    Attributes:
        tokens: The generated ids, without the prompt.
        drafted: Number of guessed tokens, all branches of trees counted.
        accepted: Number of guesses that the target would have chosen.
        target_steps: Runs of the target after the prefill; without guesses, one less than the tokens.
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
    """Generate the greedy choice of ``target``, checking guesses in its steps.

    Afterwards the session holds the prompt and all generated tokens but the last one, as after plain decoding.

    Args:
        target: The model whose tokens are wanted; it is reset first.
        prompt: The ids of one sequence.
        drafter: Makes the guesses.
        count: Number of tokens to generate.
        stop: Ids that end the generation.

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
    moves = [(held + node, held + depth) for depth, node in enumerate(path) if node != depth]
    if moves:
        target.reorder([source for source, _ in moves], [slot for _, slot in moves])
    target.rewind(held + len(path))


@dataclass(frozen=True, slots=True)
class DraftModel:
    """Guesses by a smaller model with the same tokens.

    Attributes:
        session: The model; its caches follow the history, as far as that stays the same.
        length: Number of tokens to guess, each one from the one before.
        width: Number of likeliest tokens to guess at each place; only the first one is followed. With more than one,
            the draft is a tree.

    Raises:
        UsageError: GP263, a number is not positive.
    """

    session: DecodeSession
    length: int = 4
    width: int = 1

    def __post_init__(self) -> None:
        _check_positive(length=self.length, width=self.width)

    def propose(self, history: Sequence[int]) -> Sequence[Sequence[int]]:
        """Return the likeliest continuation, and those that part from it in their last token."""
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
    for name, number in numbers.items():
        if number < 1:
            raise UsageError("GP263", f"{name} must be at least 1, but is {number}")


def _likeliest(logits: Array, count: int) -> list[int]:
    return [int(token) for token in np.argsort(-logits, kind="stable")[:count]]


@dataclass(frozen=True, slots=True)
class PromptLookup:
    """Guesses that the last tokens go on as before; needs no model.

    Attributes:
        length: Most tokens to guess.
        ngram: Most tokens to look for earlier; fewer are tried if none are found.
        width: Most earlier places to look at, the latest first. With more than one, the draft may be a tree.

    Raises:
        UsageError: GP263, a number is not positive.
    """

    length: int = 4
    ngram: int = 3
    width: int = 1

    def __post_init__(self) -> None:
        _check_positive(length=self.length, ngram=self.ngram, width=self.width)

    def propose(self, history: Sequence[int]) -> Sequence[Sequence[int]]:
        """Return the tokens after earlier occurrences of the last ones; empty if there are none."""
        tokens = tuple(history)
        for size in range(min(self.ngram, len(tokens) - 1), 0, -1):
            places = (end for end in range(len(tokens) - 1, size - 1, -1) if tokens[end - size : end] == tokens[-size:])
            paths = [tokens[end : end + self.length] for end, _ in zip(places, range(self.width), strict=False)]
            if paths:
                return paths
        return []
