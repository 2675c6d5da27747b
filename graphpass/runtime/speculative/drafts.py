"""Draft by a smaller model, or by looking at earlier text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from graphpass.errors import UsageError
from graphpass.runtime.sessions.inputs import Array
from graphpass.runtime.sessions.session import DecodeSession


def check_positive(**numbers: int) -> None:
    """Check settings of a drafter.

    Raises:
        UsageError: GP263, a number is not positive.
    """
    for name, number in numbers.items():
        if number < 1:
            raise UsageError("GP263", f"{name} must be at least 1, but is {number}")


def continuations(logits: Array, feed: Callable[[int], Array], length: int, width: int) -> list[tuple[int, ...]]:
    """Return the likeliest continuation, and those that differ in their last token.

    Args:
        logits: [vocabulary], for the first token.
        feed: Returns the logits after one more token.
        length: Number of tokens of the longest continuation.
        width: Number of likeliest tokens at each position.
    """
    path: tuple[int, ...] = ()
    paths: list[tuple[int, ...]] = []
    while True:
        likeliest = [int(token) for token in np.argsort(-logits, kind="stable")[:width]]
        paths += [(*path, token) for token in likeliest]
        path = (*path, likeliest[0])
        if len(path) == length:
            return paths
        logits = feed(path[-1])


@dataclass(frozen=True, slots=True)
class DraftModel:
    """Drafts by a smaller model with the same tokens.

    Attributes:
        session: The model; its caches follow the history, as far as that stays the same.
        length: Number of tokens to draft, each one from the one before.
        width: Number of likeliest tokens to draft at each position; only the first one is followed. With more than one,
            the draft is a tree.

    Raises:
        UsageError: GP263, a number is not positive.
    """

    session: DecodeSession
    length: int = 4
    width: int = 1

    def __post_init__(self) -> None:
        check_positive(length=self.length, width=self.width)

    def propose(self, history: Sequence[int]) -> Sequence[Sequence[int]]:
        """Return the likeliest continuation, and those that differ in their last token."""
        logits = self.session.step(self.session.align(history))[0, -1]
        return continuations(logits, lambda token: self.session.step([[token]])[0, -1], self.length, self.width)


@dataclass(frozen=True, slots=True)
class PromptLookup:
    """Drafts that the last tokens go on as before; needs no model.

    Attributes:
        length: Most tokens to draft.
        ngram: Most tokens to look for earlier; fewer are tried if none are found.
        width: Most earlier positions to look at, the latest first. With more than one, the draft may be a tree.

    Raises:
        UsageError: GP263, a number is not positive.
    """

    length: int = 4
    ngram: int = 3
    width: int = 1

    def __post_init__(self) -> None:
        check_positive(length=self.length, ngram=self.ngram, width=self.width)

    def propose(self, history: Sequence[int]) -> Sequence[Sequence[int]]:
        """Return the tokens after earlier occurrences of the last ones; empty if there are none."""
        tokens = tuple(history)
        for size in range(min(self.ngram, len(tokens) - 1), 0, -1):
            places = (end for end in range(len(tokens) - 1, size - 1, -1) if tokens[end - size : end] == tokens[-size:])
            paths = [tokens[end : end + self.length] for end, _ in zip(places, range(self.width), strict=False)]
            if paths:
                return paths
        return []
