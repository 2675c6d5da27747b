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
    """One edit of a session's caches.

    Attributes:
        name: The method of the session; ``restore`` restores the last ``snapshot``.
        arguments: Arguments of the method: a number of positions, source and target slots, or rows; empty for
            ``snapshot`` and ``restore``.
    """

    name: Literal["trim", "rewind", "reorder", "select", "snapshot", "restore"]
    arguments: tuple[int | tuple[int, ...], ...] = ()

    def __str__(self) -> str:
        numbers = (str(value) if isinstance(value, int) else ",".join(map(str, value)) for value in self.arguments)
        return f"{self.name} {' to '.join(numbers)}".rstrip()


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree of drafts, and the branch that is kept.

    Attributes:
        parents: Index of each token's parent; -1 for tokens that follow the past directly.
        branch: Indices of the kept tokens, from the root on.
    """

    parents: tuple[int, ...]
    branch: tuple[int, ...]

    def __str__(self) -> str:
        return f"tree {','.join(map(str, self.parents))} of which {','.join(map(str, self.branch))} is kept"

    @property
    def paths(self) -> tuple[tuple[int, ...], ...]:
        """Return the path from the root to each token, as indices of tokens."""
        branches: list[tuple[int, ...]] = []
        for token, parent in enumerate(self.parents):
            branches.append((*(branches[parent] if parent >= 0 else ()), token))
        return tuple(branches)


@dataclass(frozen=True, slots=True)
class Round:
    """One step, and the edits before it.

    Attributes:
        edits: Edits before the step.
        length: Number of new tokens: the reference's greedy choice, followed by drafts.
        tree: The tree that the tokens form; ``None`` for a chain, all of which is kept.
    """

    edits: tuple[Edit, ...] = ()
    length: int = 1
    tree: Tree | None = None

    def selected(self, rows: list[list[int]]) -> list[list[int]]:
        """Return copies of ``rows`` in the order that the ``select`` edits leave."""
        for edit in self.edits:
            if edit.name == "select":
                (chosen,) = edit.arguments
                assert isinstance(chosen, tuple)
                rows = [[*rows[row]] for row in chosen]
        return rows

    @property
    def words(self) -> tuple[str, ...]:
        """Return the edits of the caches, as text."""
        return tuple(map(str, (*self.edits, *((self.tree,) if self.tree is not None else ()))))


class Editor:
    """Applies edits to one session."""

    def __init__(self, session: DecodeSession) -> None:
        self._session = session
        self._snapshot: Snapshot | None = None

    def apply(self, edits: Iterable[Edit]) -> None:
        """Apply edits in order.

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
        """Run a tree of drafts, then keep one branch in the caches.

        Without an input ``tree_mask``, the path to each token is run separately.

        Args:
            ids: int64 [batch, length].
            tree: The tree of ``ids``.

        Returns:
            All outputs that are not caches, by name, as of one step with all tokens; of the last token alone if the
            model computes no others.
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
    """Return steps that reject drafts, restore earlier states and move slots of one sequence.

    Args:
        length: Length of the prompt.
        moves: Whether to move slots; linear caches have none.
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
        # Move a branch of drafts, as speculative decoding does; then exchange two slots, which caches also support.
        branch = Edit("reorder", ((length + 2, length + 3), (length, length + 1)))
        exchange = Edit("reorder", ((0, half), (half, 0)))
        rounds += [Round((branch, Edit("trim", (2,))), length=2), Round((exchange,)), Round((Edit("trim", (1,)),))]
    return (*rounds, Round((Edit("restore"),)), Round((Edit("rewind", (0,)),), length=length), Round())


def row_rounds(rows: int, *, fixed: bool, drafts: bool) -> tuple[Round, ...]:
    """Return beam-search steps: reverse rows, replace all by the first, drop one.

    Args:
        rows: Number of sequences.
        fixed: Whether the number of sequences is fixed; no row is dropped then.
        drafts: Whether one step has several tokens.
    """
    turned, first = Edit("select", (tuple(reversed(range(rows))),)), Edit("select", ((0,) * rows,))
    rest = () if fixed else (Round((Edit("select", (tuple(range(1, rows)),)),)),)
    return (Round(), Round((turned,)), Round((first,), length=3 if drafts else 1), *rest)


def beam_rounds(rows: int) -> tuple[Round, ...]:
    """Return steps that select rows and trim; the last step has several tokens.

    Args:
        rows: Number of sequences.
    """
    turned, first = Edit("select", (tuple(reversed(range(rows))),)), Edit("select", ((0,) * rows,))
    trimmed = Edit("trim", (1,))
    return (Round(), Round((turned,)), Round((trimmed,)), Round((first, trimmed)), Round((turned,), length=2))


def tree_rounds() -> tuple[Round, ...]:
    """Return steps with trees of drafts whose kept branches are moved to contiguous slots."""
    trees = Tree((-1, 0, 0, 1, -1, 2), (0, 2, 5)), Tree((-1, -1, 1, 1, 3), (1, 3))
    return (*(Round(length=len(tree.parents), tree=tree) for tree in trees), Round())
