"""Compare two models over whole decode trajectories.

The package can be called: ``graphpass.verify(reference, candidate)`` is `graphpass.verify.models.verify`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from graphpass.verify.comparison import Comparison, Divergence, PartProof, SequenceRun

if TYPE_CHECKING:
    from graphpass.verify.compare_models import compare
    from graphpass.verify.layers.proof import compare_within

__all__ = ["Comparison", "Divergence", "PartProof", "SequenceRun", "compare", "compare_within"]


def __getattr__(name: str) -> object:
    # These import numpy and a runtime, which readers of a result do not need.
    if name == "compare":
        from graphpass.verify.compare_models import compare

        return compare
    if name == "compare_within":
        from graphpass.verify.layers.proof import compare_within

        return compare_within
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Callable(ModuleType):
    """Lets a function and a package share the name ``graphpass.verify``."""

    def __call__(self, *arguments: Any, **options: Any) -> Comparison:
        from graphpass.verify.models import verify

        return verify(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
