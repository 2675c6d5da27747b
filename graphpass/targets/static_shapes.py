"""Rules for a prefill or a decode model of static shapes, as `graphpass split` makes them.

Caches of such a model are plain inputs and outputs: its caller writes new positions into them. NPUW takes it on its
generic path, without ``NPUW_LLM``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.engine.findings import Finding

if TYPE_CHECKING:
    from graphpass.ir.model import Model
    from graphpass.ir.phase import Phase

__all__ = ["predict"]

_GENERIC = "src/plugins/intel_npu/src/plugin/npuw/compiled_model.cpp"


def predict(model: Model, phase: Phase) -> tuple[Finding, ...]:
    """Predict the treatment of ``model`` by a runtime that compiles ahead of time."""
    dynamic = "it is of no fixed shape: run graphpass split again"
    written = "of fixed shape; who runs the model writes its new positions"
    return (
        *(
            Finding("input", port.name, "refused", reason=dynamic, source=_GENERIC)
            for port in model.inputs
            if port.shape is None or not all(isinstance(size, int) for size in port.shape)
        ),
        *(Finding("cache", cache.read, "taken", layer=cache.layer, reason=written) for cache in phase.caches),
    )
