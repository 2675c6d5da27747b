"""Rules of a third party's runtime: it refuses logits that no constant scales."""

from __future__ import annotations

from graphpass.analysis.pattern import op, var
from graphpass.engine.findings import Finding
from graphpass.ir.cache import Inventory
from graphpass.ir.miss import Miss
from graphpass.ir.model import Model

SCALED = op.Multiply(var("output"), op.Constant())


def predict(model: Model, inventory: Inventory) -> tuple[Finding, ...]:
    """Predict the treatment of ``model`` by the sample runtime."""
    findings = [Finding("cache", cache.name, "taken", cache.layer) for cache in inventory.caches]
    logits = next(node.source() for node in model.graph.of_op("Result") if node.name == "logits")
    scaled = SCALED.match(model.graph, logits)
    if isinstance(scaled, Miss):
        findings.insert(0, Finding.at(scaled, "model", str(model.path), "refused", "sample/runtime.cpp"))
    return tuple(findings)
