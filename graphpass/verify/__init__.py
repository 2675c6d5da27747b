"""Compare two models over whole decode trajectories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.verify.comparison import Comparison, Divergence, SequenceRun

if TYPE_CHECKING:
    from graphpass.verify.lockstep import compare

__all__ = ["Comparison", "Divergence", "SequenceRun", "compare"]


def __getattr__(name: str) -> object:
    # Comparing needs numpy and a runtime, which reading a result should not pay for.
    if name == "compare":
        from graphpass.verify.lockstep import compare

        return compare
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
