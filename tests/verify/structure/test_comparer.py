"""Comparison of results: which are compared, and which are not proven equal."""

from __future__ import annotations

import pytest
from support.loaded import converted, exported
from verify.layers.faults_of_layers import edited
from verify.structure.comparing import comparer_of


@pytest.fixture(scope="module")
def reference():
    return exported("llama/onnx")


def test_caches_come_before_outputs(reference):
    comparer = comparer_of(reference, converted(reference).model, "logits", unpadded=True)
    names = [result.name for result in comparer.results]
    assert names[-1] == "logits"
    assert all("past_key_values" in name for name in names[:-1])
    assert comparer.unequal() == []


def test_results_downstream_of_an_unequal_cache(reference):
    def scale(rewriter, model):
        key = model.graph.writes["present.0.key"]
        more = rewriter.constant(1.5, "f32", "more")
        rewriter.redirect(key, 0, rewriter.op("Multiply", key.source(), more, name="scaled"))

    comparer = comparer_of(reference, edited(reference, scale), "logits", unpadded=False)
    unequal = comparer.unequal()
    assert [result.reference.name for result in unequal] == ["present.0.key"]
    assert set(unequal) <= set(comparer.unequal_or_downstream())
    assert 0 < comparer.operators(unequal) < comparer.operators(comparer.results)


def test_outputs_of_another_rank_are_unequal(reference):
    def flatten(rewriter, model):
        logits = model.graph.writes["logits"]
        rewriter.redirect(logits, 0, rewriter.op("Reshape", logits.source(), [-1], name="flat"))

    unequal = comparer_of(reference, edited(reference, flatten), "logits", unpadded=False).unequal()
    assert [result.name for result in unequal] == ["logits"]
