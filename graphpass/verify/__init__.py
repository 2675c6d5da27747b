"""Compare two models over whole decode trajectories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.verify.comparison import Comparison, Divergence, PartProof, SequenceRun

if TYPE_CHECKING:
    from graphpass.verify.layers.proof import compare_within
    from graphpass.verify.lockstep import compare

__all__ = ["Comparison", "Divergence", "PartProof", "SequenceRun", "compare", "compare_within"]


def __getattr__(name: str) -> object:
    # Comparing needs numpy and a runtime, which reading a result should not pay for.
    if name == "compare":
        from graphpass.verify.lockstep import compare

        return compare
    if name == "compare_within":
        from graphpass.verify.layers.proof import compare_within

        return compare_within
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
