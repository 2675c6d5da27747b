"""What takes a prefill or a decode model of static shapes, as `graphpass split` makes them.

Caches of such a model are plain inputs and outputs: who runs it writes new positions into them. NPUW takes it on its
generic path, without ``NPUW_LLM``, whose rules are those of `graphpass.targets.npu.npu`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.targets.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphpass.ir.model import Model
    from graphpass.ir.phase import Phase

__all__ = ["predict"]

_GENERIC = "src/plugins/intel_npu/src/plugin/npuw/compiled_model.cpp"

_TAKEN = "of fixed shape; who runs the model writes its new positions"


def predict(model: Model, phase: Phase) -> tuple[Finding, ...]:
    """What a runtime that compiles ahead of time will do with ``model``."""
    return (*_open(model), *_caches(phase))


def _open(model: Model) -> Iterator[Finding]:
    for port in model.inputs:
        if port.shape is None or not all(isinstance(size, int) for size in port.shape):
            yield Finding(
                "input",
                port.name,
                "refused",
                reason="it is of no fixed shape: run graphpass split again",
                source=_GENERIC,
            )


def _caches(phase: Phase) -> Iterator[Finding]:
    for cache in phase.caches:
        yield Finding("cache", cache.read, "taken", layer=cache.layer, reason=_TAKEN)
