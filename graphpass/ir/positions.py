"""Check numbers of positions."""

from __future__ import annotations

from graphpass.errors import UsageError

__all__ = ["check_positions"]

#: Runtimes count so far: lengths are i32 in some of their operators (GroupQueryAttention's total_sequence_length).
_MOST = 2**31 - 1


def check_positions(what: str, count: int) -> None:
    """Check a number of positions that a caller asks for.

    Args:
        what: Holder of the positions, as the message names it.
        count: Number of positions.

    Raises:
        UsageError: GP266, there cannot be so many.
    """
    if not 1 <= count <= _MOST:
        reason = "holds nothing" if count < 1 else "is longer than runtimes can count"
        raise UsageError("GP266", f"{what} of {count} positions {reason}", f"give a number from 1 to {_MOST}")
