"""The pass `split-value-transposes`, and the rule that asks for it."""

from __future__ import annotations

import graphpass
from graphpass.testing import assert_same, run, tiny_model


def reordered():
    """Return a model whose values are transposed twice."""
    model = tiny_model("llama", "stateful", layers=1)
    value = next(cache for cache in graphpass.analyze_caches(model).caches if cache.role == "value")
    (append,) = (
        node for node in model.graph.of_op("Concat") if model.graph.writes[value.write].source() == node.outputs[0]
    )
    heads = model.graph.producer(append.source(1))
    rewriter = model.rewriter()
    write = rewriter.under("reordered")
    first = write.op("Transpose", heads.source(), order=[2, 0, 1, 3])
    rewriter.replace(heads.outputs[0], write.op("Transpose", first, order=[1, 0, 2, 3]))
    rewriter.finish()
    return model


def refusals(model):
    findings = graphpass.get_target("npu").predict(model, graphpass.analyze_caches(model))
    return [finding.reason for finding in findings if "replaces its order" in (finding.reason or "")]


def test_values_of_another_order_are_transposed_twice():
    model = run(reordered(), "rename-variables")
    assert refusals(model)
    result = run(model, "split-value-transposes")
    assert not refusals(result)
    assert_same(model, result)


def test_values_of_the_usual_order_stay():
    model = tiny_model("llama", "stateful", layers=1)
    assert run(model, "split-value-transposes").digest() == model.digest()
