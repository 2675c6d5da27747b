"""Predict Qualcomm's HTP under ONNX Runtime: static shapes, and operators that its builders take.

Sources: ``core/providers/qnn/builder`` of ONNX Runtime, and one-operator models that ran on the emulated HTP of
onnxruntime-qnn 2.7.0 (`graphpass.targets.qnn.operators`).
"""

from __future__ import annotations

from collections.abc import Iterator

from graphpass.engine.findings import Finding
from graphpass.ir.cache import Inventory
from graphpass.ir.model import Model
from graphpass.ir.phase import Phase
from graphpass.targets.qnn.operators import computed_nodes, why_on_cpu
from graphpass.targets.rules import static_findings

_BUILDERS = "onnxruntime/core/providers/qnn/builder/op_builder_factory.cc"


def predict(model: Model, inventory: Inventory) -> tuple[Finding, ...]:  # noqa: ARG001 - as `Target.predict`
    """Predict the treatment of ``model``, a prefill or a decode model in ONNX."""
    phase = Phase.find(model)
    if phase is None:
        reason = "its shapes are open, and HTP compiles static ones: graphpass convert --target qnn makes a pair"
        return (Finding.of_model(model, "refused", reason, _BUILDERS),)
    return (*_operators(model), *static_findings(model, phase))


def predict_pair(prefill: Model, decode: Model, inventory: Inventory) -> tuple[Finding, ...]:
    """Predict the treatment of a pair; findings on operators are those of both models."""
    return (*(_operators(prefill) if Phase.find(prefill) is not None else ()), *predict(decode, inventory))


def _operators(model: Model) -> Iterator[Finding]:
    """Yield a finding for the first node of each operator left to the CPU."""
    seen: set[tuple[str, str]] = set()
    reached = computed_nodes(model.graph)
    for node in model.graph.nodes:
        reason = why_on_cpu(model.graph, node) if node.index in reached else None
        if reason is not None and (node.op, reason) not in seen:
            seen.add((node.op, reason))
            yield Finding.of_model(model, "refused", f"HTP does not run {node.op}: {reason}", _BUILDERS, node)
