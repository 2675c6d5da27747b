"""Draft with a smaller model, or by prompt lookup."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from graphpass.errors import UsageError
from graphpass.runtime.sessions.inputs import Array
from graphpass.runtime.sessions.session import DecodeSession


def check_positive(**numbers: int) -> None:
    """Raise if a setting of a drafter is not positive.

    Raises:
        UsageError: GP263, a number is not positive.
    """
    for name, number in numbers.items():
        if number < 1:
            raise UsageError("GP263", f"{name} must be at least 1, but is {number}")


def continuations(logits: Array, feed: Callable[[int], Array], length: int, width: int) -> list[tuple[int, ...]]:
    """Return prefixes of the greedy continuation, each with ``width`` choices of its last token.

    Args:
        logits: [vocabulary], for the first token.
        feed: Feeds one token and returns the logits after it, [vocabulary].
        length: Number of tokens of the greedy continuation.
        width: Number of most likely tokens at each position.
    """
    path: tuple[int, ...] = ()
    paths: list[tuple[int, ...]] = []
    while True:
        likeliest = _likeliest(logits, width)
        paths += [(*path, token) for token in likeliest]
        path = (*path, likeliest[0])
        if len(path) == length:
            return paths
        logits = feed(path[-1])


def _likeliest(logits: Array, count: int) -> list[int]:
    """Return the ids with the largest logits, the largest first, without sorting the vocabulary."""
    if count == 1:
        return [int(logits.argmax())]
    count = min(count, len(logits))
    tokens = np.flatnonzero(logits >= np.partition(logits, -count)[-count])
    return [int(token) for token in tokens[np.argsort(-logits[tokens], kind="stable")[:count]]]


@dataclass(frozen=True, slots=True)
class DraftModel:
    """Drafts of a smaller model with the same vocabulary.

    Attributes:
        session: The smaller model; its caches keep the common prefix with the history.
        length: Number of tokens to draft, one after another.
        width: Number of most likely tokens to draft at each position; only the first is continued. With more than one,
            the draft is a tree.

    Raises:
        UsageError: GP263, a number is not positive.

    Examples:
        >>> from graphpass.runtime import open_session
        >>> from graphpass.runtime.speculative import DraftModel, speculate
        >>> from graphpass.testing import tiny_model
        >>> draft = DraftModel(open_session(tiny_model("llama", layers=1)), length=3)
        >>> len(speculate(open_session(tiny_model("llama")), [1, 5, 9], draft, count=4).tokens)
        4
    """

    session: DecodeSession
    length: int = 4
    width: int = 1

    def __post_init__(self) -> None:
        check_positive(length=self.length, width=self.width)

    def propose(self, history: Sequence[int]) -> Sequence[Sequence[int]]:
        """Return prefixes of the greedy continuation, with ``width`` choices of the last token."""
        logits = self.session.step(self.session.align(history))[0, -1]
        return continuations(logits, lambda token: self.session.step([[token]])[0, -1], self.length, self.width)


@dataclass(frozen=True, slots=True)
class PromptLookup:
    """Drafts of the tokens after earlier occurrences of the last tokens; requires no model.

    Attributes:
        length: Maximum number of tokens to draft.
        ngram: Maximum number of last tokens to search for; fewer are tried if they do not occur earlier.
        width: Maximum number of occurrences to use, the latest first. With more than one, the draft may be a tree.

    Raises:
        UsageError: GP263, a number is not positive.

    Examples:
        >>> from graphpass.runtime.speculative import PromptLookup
        >>> PromptLookup(length=2).propose([1, 5, 9, 14, 1, 5])
        [(9, 14)]
    """

    length: int = 4
    ngram: int = 3
    width: int = 1

    def __post_init__(self) -> None:
        check_positive(length=self.length, ngram=self.ngram, width=self.width)

    def propose(self, history: Sequence[int]) -> Sequence[Sequence[int]]:
        """Return the tokens that followed earlier occurrences of the last tokens; empty without one."""
        tokens = tuple(history)
        for size in range(min(self.ngram, len(tokens) - 1), 0, -1):
            places = (end for end in range(len(tokens) - 1, size - 1, -1) if tokens[end - size : end] == tokens[-size:])
            paths = [tokens[end : end + self.length] for end, _ in zip(places, range(self.width), strict=False)]
            if paths:
                return paths
        return []
