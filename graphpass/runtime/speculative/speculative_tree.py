"""Guessed continuations as one tree of tokens, so that one step can check them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

__all__ = ["DraftTree"]


@dataclass(frozen=True, slots=True)
class DraftTree:
    """Tokens to feed in one step.

    Attributes:
        tokens: The ids; the first one is no guess but the last token of the history.
        parents: For each, which of them stands before it; -1 for the first one.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]

    @classmethod
    def of(cls, last: int, continuations: Sequence[Sequence[int]], depth: int) -> DraftTree:
        """Join continuations, each cut to ``depth`` tokens; what begins alike stands once."""
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
        """Whether each token stands behind the one before it."""
        return self.parents == tuple(range(-1, len(self.parents) - 1))

    def path(self, choices: Sequence[int], stop: Collection[int] = ()) -> list[int]:
        """The nodes that hold: the first, and from each on the child that is what the model chose there.

        Args:
            choices: What the model chooses behind each token.
            stop: Choices behind which no more is wanted.
        """
        children = {pair: node for node, pair in enumerate(zip(self.parents, self.tokens, strict=True))}
        path = [0]
        while choices[path[-1]] not in stop and (path[-1], choices[path[-1]]) in children:
            path.append(children[path[-1], choices[path[-1]]])
        return path
