"""append-presents: outputs with new entries return the past as well."""

from __future__ import annotations

import numpy

import graphpass
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.new_entries import find_new_entries
from graphpass.runtime import open_session
from graphpass.testing import tiny_model


def of_new_entries(*, through: str = "") -> graphpass.Model:
    """Return a decoder whose presents are the new keys and values, directly or through an operator."""
    model = tiny_model("llama", layers=1)
    rewriter = model.rewriter()
    for result in [*model.graph.of_op("Result")]:
        joined = model.graph.producer(result.source())
        if joined.op == "Concat":
            new = joined.inputs[1]
            source = rewriter.op(through, new, name=f"{result.name}/{through}") if through else new
            rewriter.redirect(result, 0, source)
            rewriter.name_dimension(result, joined.attributes["axis"], "length")
    assert rewriter.finish()
    return model


def test_presents_return_past_and_new_entries():
    for through in ("", "Identity"):
        model = of_new_entries(through=through)
        assert analyze_caches(model).kind != "kv"
        assert {each.axis for each in find_new_entries(model)} == {2}
        result = graphpass.PassManager(graphpass.parse("append-presents")).run(model)
        assert result.records[-1].result.statistics == {"presents appended": 2}
        assert analyze_caches(result.model).kind == "kv"
        session, expected = open_session(result.model), open_session(tiny_model("llama", layers=1))
        for tokens in ([[1, 5, 9]], [[7]], [[2]]):
            numpy.testing.assert_array_equal(session.step(tokens), expected.step(tokens))


def test_other_outputs_stay():
    assert find_new_entries(tiny_model("llama")) == ()
    assert find_new_entries(of_new_entries(through="Negative")) == ()
    assert not graphpass.PassManager(graphpass.parse("append-presents")).run(tiny_model("llama")).changed


def test_comparisons_append_the_entries_of_the_reference():
    comparison = graphpass.verify(of_new_entries(), tiny_model("llama", layers=1), steps=2)
    assert comparison.passed
    note = "outputs with the new entries of caches, which callers append to the past: the reference ran after"
    assert any(skipped.startswith(note) for skipped in comparison.skipped)
