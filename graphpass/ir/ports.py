"""The numbers by which masks hide positions from attention, which adds them to scores or puts them in their place."""

from __future__ import annotations

__all__ = ["MASKED", "MASKED_BELOW"]

#: What a masked score is set to: the lowest number of f16. It is finite in f16, bf16 and f32, so that a row which is
#: masked whole stays free of NaN at any inference precision, and exp of it is 0. Optimum's exports use the same.
MASKED = -65504.0

#: What counts as masked: below this, ``exp`` of a score is 0 beside any other score.
MASKED_BELOW = -1e3
