"""Run fuse-experts, and hold what it leaves to what `check` prints."""

from __future__ import annotations

from typing import Any

import graphpass
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.pipeline import parse_target
from support.operators import count_operators


def fused(model: Any, options: str = "") -> tuple[OnnxModel, Any]:
    """The model after the pass, and what the pass did."""
    result = graphpass.PassManager(graphpass.parse(f"fuse-experts{options}")).run(model)
    assert isinstance(result.model, OnnxModel)
    return result.model, result.records[0].result


def findings(model: Any, target: str = "ort") -> list[tuple[str, str | None]]:
    """Verdicts on layers of experts, with their reasons."""
    predictions = parse_target(target).predict(model, analyze_caches(model))
    return [(finding.verdict, finding.reason) for finding in predictions if finding.subject == "experts"]


def assert_stays(model: OnnxModel, reason: str) -> None:
    """The pass leaves the one layer, and notes what `check` prints."""
    after, done = fused(model)
    assert not done.changed
    assert count_operators(after) == count_operators(model)
    assert reason in done.notes[0]
    ((verdict, explanation),) = findings(model)
    assert verdict == "plain"
    assert explanation is not None
    assert explanation.partition(": ")[2] == done.notes[0].partition(": ")[2]
