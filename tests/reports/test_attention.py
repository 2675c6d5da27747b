"""What keeps attention from being fused is reported in the same words everywhere."""

from __future__ import annotations

from support.models import fixtures

import graphpass
from graphpass.analysis.attention.find import find_attention
from graphpass.reports.attention import grouped_query_in_words, grouped_query_misses
from graphpass.reports.cache import reason_about
from graphpass.targets.check import check_model


def test_a_miss_is_the_same_in_notes_and_why_and_check():
    model = graphpass.load(fixtures() / "gemma2/onnx/model.onnx")
    run = graphpass.PassManager(graphpass.parse("to-openvino,fuse-attention,make-stateful")).run(model)
    misses = {found.node.name: str(found.miss) for found in run.model.analysis(find_attention)}
    assert len(misses) == 4
    assert all(miss.startswith("its scores are soft-capped (at Tanh ") for miss in misses.values())
    notes = [note for record in run.records for note in getattr(record.result, "notes", ())]
    assert [f"attention at {name} stays unchanged: {miss}" for name, miss in misses.items()] == notes
    inventory = graphpass.analyze_caches(run.model)
    assert [block.reason for block in inventory.attention] == list(misses.values())
    for cache in inventory.caches:
        (reader,) = reason_about(run.model, inventory, cache).readers
        assert {name: str(miss) for name, miss in reader.misses.items()} == {
            "fuse-attention": misses[reader.node.split()[1]]
        }
    told = {finding.name: str(finding.reason) for finding in check_model(run.model, "cpu", confirm=False).findings}
    assert all(miss in told[name] for name, miss in misses.items())


def test_a_miss_of_grouped_queries_is_the_same_in_notes_and_inspect_and_why_and_check():
    model = graphpass.load(fixtures() / "deepseek_v3/onnx/model.onnx")
    run = graphpass.PassManager(graphpass.parse("fuse-group-query-attention")).run(model)
    misses = grouped_query_misses(model)
    assert len(misses) == 2
    assert all("requires keys and values of one size, not 24 and 16" in str(miss) for miss in misses.values())
    notes = [f"attention at {name} stays unchanged: {miss}" for name, miss in misses.items()]
    assert notes == list(run.records[0].result.notes)
    miss = next(iter(misses.values()))
    assert grouped_query_in_words(misses) == [f"  fuse-group-query-attention does not fuse 2: {miss}"]
    inventory = graphpass.analyze_caches(model)
    for cache in inventory.caches:
        (reader,) = reason_about(model, inventory, cache).readers
        assert reader.misses == {"fuse-group-query-attention": misses[reader.node.split()[1]]}
    told = {finding.name: str(finding.reason) for finding in check_model(model, "ort", confirm=False).findings}
    assert all(str(miss) in told[name] for name, miss in misses.items())
