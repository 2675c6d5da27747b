"""Merge draft continuations to one tree of tokens."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DraftTree:
    """Draft continuations as one tree of tokens, which is fed in one step.

    Attributes:
        tokens: Token ids; the first is the last token of the history.
        parents: Index of each token's parent; -1 for the first.

    Examples:
        >>> from graphpass.runtime.speculative import DraftTree
        >>> DraftTree.of(7, [[1, 2], [1, 3]], depth=2)
        DraftTree(tokens=(7, 1, 2, 3), parents=(-1, 0, 1, 1))
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]

    @classmethod
    def of(cls, last: int, continuations: Sequence[Sequence[int]], depth: int) -> DraftTree:
        """Return a tree of continuations, merged by their common prefixes.

        Args:
            last: The last token id of the history, the root of the tree.
            continuations: Token ids after ``last``, of one branch each.
            depth: Largest number of tokens of a branch; further tokens are dropped.
        """
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
        """Return whether each token is the parent of the next."""
        return self.parents == tuple(range(-1, len(self.parents) - 1))

    def path(self, choices: Sequence[int], stop: Collection[int] = ()) -> list[int]:
        """Return the path of the model's choices from the first node.

        Args:
            choices: The model's choice after each token of the tree.
            stop: Choices that end the path.
        """
        children = {pair: node for node, pair in enumerate(zip(self.parents, self.tokens, strict=True))}
        path = [0]
        while choices[path[-1]] not in stop and (path[-1], choices[path[-1]]) in children:
            path.append(children[path[-1], choices[path[-1]]])
        return path
