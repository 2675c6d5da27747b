"""What keeps attention from being fused is reported in the same words everywhere."""

from __future__ import annotations

from support.models import fixtures

import graphpass
from graphpass.analysis.attention.find import find_attention
from graphpass.reports.cache import reason_about
from graphpass.targets.check import check_model


def test_a_miss_is_the_same_in_notes_and_why_and_check():
    model = graphpass.load(fixtures() / "gemma2/onnx/model.onnx")
    run = graphpass.PassManager(graphpass.parse("to-openvino,fuse-attention,make-stateful")).run(model)
    misses = {found.node.name: str(found.miss) for found in run.model.analysis(find_attention)}
    assert len(misses) == 4
    assert all(miss.startswith("its scores are soft-capped (at Tanh ") for miss in misses.values())
    notes = [note for record in run.records for note in getattr(record.result, "notes", ())]
    assert [f"attention at {name} stays as it is: {miss}" for name, miss in misses.items()] == notes
    inventory = graphpass.analyze_caches(run.model)
    assert [block.reason for block in inventory.attention] == list(misses.values())
    for cache in inventory.caches:
        (reader,) = reason_about(run.model, inventory, cache).readers
        assert str(reader.miss) == misses[reader.node.split()[1]]
    told = {finding.name: str(finding.reason) for finding in check_model(run.model, "cpu", confirm=False).findings}
    assert all(miss in told[name] for name, miss in misses.items())
