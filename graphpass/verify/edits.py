"""Edit caches between the steps of a comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from graphpass.runtime.sessions.checkpoints import Snapshot
    from graphpass.runtime.sessions.inputs import Array
    from graphpass.runtime.sessions.session import DecodeSession


@dataclass(frozen=True, slots=True)
class Edit:
    """Describes one edit.

    Attributes:
        name: The session's method; ``restore`` brings back the last ``snapshot``.
        arguments: Number of positions, or slots or rows.
    """

    name: Literal["trim", "rewind", "reorder", "select", "snapshot", "restore"]
    arguments: tuple[int | tuple[int, ...], ...] = ()

    def __str__(self) -> str:
        numbers = (str(value) if isinstance(value, int) else ",".join(map(str, value)) for value in self.arguments)
        return f"{self.name} {' to '.join(numbers)}".rstrip()


@dataclass(frozen=True, slots=True)
class Tree:
    """Describes a tree of drafts and the branch of it that is kept.

    Attributes:
        parents: Index of each token's parent, -1 for the history.
        branch: The tokens that are kept, from the history on.
    """

    parents: tuple[int, ...]
    branch: tuple[int, ...]

    def __str__(self) -> str:
        return f"tree {','.join(map(str, self.parents))} of which {','.join(map(str, self.branch))} is kept"

    @property
    def paths(self) -> tuple[tuple[int, ...], ...]:
        """Return each token with its ancestors, from the history on."""
        branches: list[tuple[int, ...]] = []
        for token, parent in enumerate(self.parents):
            branches.append((*(branches[parent] if parent >= 0 else ()), token))
        return tuple(branches)


@dataclass(frozen=True, slots=True)
class Round:
    """Describes one step.

    Attributes:
        edits: Edits before it.
        length: Number of tokens that are fed: the reference's choice and drafts after it.
        tree: Their tree; ``None`` for a chain, which is kept.
    """

    edits: tuple[Edit, ...] = ()
    length: int = 1
    tree: Tree | None = None

    def selected(self, rows: list[list[int]]) -> list[list[int]]:
        """Return ``rows`` as the edits select them."""
        for edit in self.edits:
            if edit.name == "select":
                (chosen,) = edit.arguments
                assert isinstance(chosen, tuple)
                rows = [[*rows[row]] for row in chosen]
        return rows

    @property
    def words(self) -> tuple[str, ...]:
        """Return the edits of the caches, for people."""
        return tuple(map(str, (*self.edits, *((self.tree,) if self.tree is not None else ()))))


class Editor:
    """Edits one session."""

    def __init__(self, session: DecodeSession) -> None:
        self._session = session
        self._snapshot: Snapshot | None = None

    def apply(self, edits: Iterable[Edit]) -> None:
        """Make edits, one after the other.

        Raises:
            UnsupportedError: GP322 and GP370, as the session's methods.
        """
        for edit in edits:
            if edit.name == "snapshot":
                self._snapshot = self._session.snapshot()
            elif edit.name == "restore":
                assert self._snapshot is not None
                self._session.restore(self._snapshot)
            else:
                getattr(self._session, edit.name)(*edit.arguments)

    def feed_tree(self, ids: NDArray[np.int64], tree: Tree) -> dict[str, Array]:
        """Feed a tree at once, or branch by branch, and keep one branch.

        Args:
            ids: int64 [batch, length].
            tree: The tree of ``ids``.

        Returns:
            All outputs that are not caches, by name, as of one step; if the model computes the last token's alone,
            that one's.
        """
        length, kept = self._session.length, len(tree.branch)
        if self._session.takes_tree:
            outputs = self._session.forward(ids, parents=tree.parents)
            self._session.reorder([length + token for token in tree.branch], range(length, length + kept))
            self._session.rewind(length + kept)
            return outputs
        steps = []
        for path in tree.paths:
            steps.append(self._session.forward(ids[:, path]))
            self._session.rewind(length)
        self._session.forward(ids[:, tree.branch])
        last = steps[-1]
        return {
            name: np.concatenate([step[name][:, -1:] for step in steps], axis=1) if output.shape[1] > 1 else output
            for name, output in last.items()
        }


def edit_rounds(length: int, *, moves: bool) -> tuple[Round, ...]:
    """Return edits of one sequence: reject drafts in part, restore old states, move slots.

    Args:
        length: Length of the prompt.
        moves: Whether slots can be moved; linear caches have none.
    """
    half = (length + 1) // 2
    rounds = [
        Round(length=4),
        Round((Edit("trim", (3,)),)),
        Round((Edit("trim", (1,)),), length=3),
        Round((Edit("trim", (2,)), Edit("snapshot")), length=3),
        Round((Edit("rewind", (half,)),), length=4),
        Round((Edit("restore"),), length=2),
        Round((Edit("rewind", (length,)),), length=4),
    ]
    if moves:
        # Move a branch into its slots; then exchange slots, which no decoding asks for but caches take.
        branch = Edit("reorder", ((length + 2, length + 3), (length, length + 1)))
        exchange = Edit("reorder", ((0, half), (half, 0)))
        rounds += [Round((branch, Edit("trim", (2,))), length=2), Round((exchange,)), Round((Edit("trim", (1,)),))]
    return (*rounds, Round((Edit("restore"),)), Round((Edit("rewind", (0,)),), length=length), Round())


def row_rounds(rows: int, *, fixed: bool, drafts: bool) -> tuple[Round, ...]:
    """Return edits of a beam search: exchange rows, continue one twice, end one.

    Args:
        rows: Number of sequences.
        fixed: Whether their number has to stay.
        drafts: Whether one step feeds several tokens.
    """
    turned, first = Edit("select", (tuple(reversed(range(rows))),)), Edit("select", ((0,) * rows,))
    rest = () if fixed else (Round((Edit("select", (tuple(range(1, rows)),)),)),)
    return (Round(), Round((turned,)), Round((first,), length=3 if drafts else 1), *rest)


def beam_rounds(rows: int) -> tuple[Round, ...]:
    """Return edits of sequences side by side; the last step feeds several tokens.

    Args:
        rows: Number of sequences.
    """
    turned, first = Edit("select", (tuple(reversed(range(rows))),)), Edit("select", ((0,) * rows,))
    trimmed = Edit("trim", (1,))
    return (Round(), Round((turned,)), Round((trimmed,)), Round((first, trimmed)), Round((turned,), length=2))


def tree_rounds() -> tuple[Round, ...]:
    """Return trees of drafts with kept branches that have to move."""
    trees = Tree((-1, 0, 0, 1, -1, 2), (0, 2, 5)), Tree((-1, -1, 1, 1, 3), (1, 3))
    return (*(Round(length=len(tree.parents), tree=tree) for tree in trees), Round())
