"""The edits of caches that a comparison makes between steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from graphpass.runtime.checkpoints import Snapshot
    from graphpass.runtime.session import DecodeSession

__all__ = ["Edit", "Editor", "Round", "beam_rounds", "edit_rounds"]


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit.

    Attributes:
        name: The session's method; ``restore`` brings back the last ``snapshot``.
        arguments: What it takes: how many positions, or which slots or rows.
    """

    name: Literal["trim", "rewind", "reorder", "select", "snapshot", "restore"]
    arguments: tuple[int | tuple[int, ...], ...] = ()

    def __str__(self) -> str:
        numbers = (str(value) if isinstance(value, int) else ",".join(map(str, value)) for value in self.arguments)
        return f"{self.name} {' to '.join(numbers)}".rstrip()


@dataclass(frozen=True, slots=True)
class Round:
    """What is done at one step.

    Attributes:
        edits: Before it.
        length: How many tokens are fed, the reference's choice and drafts behind it.
    """

    edits: tuple[Edit, ...] = ()
    length: int = 1


class Editor:
    """Makes edits on one session."""

    def __init__(self, session: DecodeSession) -> None:
        """Without a snapshot."""
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


def edit_rounds(length: int, *, moves: bool) -> tuple[Round, ...]:
    """Edits of one sequence: drafts are rejected in part, old times come back, slots move.

    Args:
        length: Of the prompt.
        moves: Whether slots can be moved, as those of linear caches cannot: they have none.
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
        # A branch is moved to where it belongs; then slots change places, which no decoding asks for but caches take.
        branch = Edit("reorder", ((length + 2, length + 3), (length, length + 1)))
        exchange = Edit("reorder", ((0, half), (half, 0)))
        rounds += [Round((branch, Edit("trim", (2,))), length=2), Round((exchange,)), Round((Edit("trim", (1,)),))]
    return (*rounds, Round((Edit("restore"),)), Round((Edit("rewind", (0,)),), length=length), Round())


def beam_rounds(rows: int) -> tuple[Round, ...]:
    """Edits of sequences side by side, of which one token a step is fed: some operators take no more.

    Args:
        rows: How many sequences.
    """
    turned, first = Edit("select", (tuple(reversed(range(rows))),)), Edit("select", ((0,) * rows,))
    trimmed = Edit("trim", (1,))
    return (Round(), Round((turned,)), Round((trimmed,)), Round((first, trimmed)), Round((turned,)))
