"""The pass `reshape-results`: a Reshape before Results at which NPUW would cut off the logits."""

import pytest

from graphpass.testing import assert_same, run, tiny_model


@pytest.mark.parametrize("form", ["stateful", "openvino"])
def test_models_whose_logits_are_cut_alone_stay(form):
    model = tiny_model("llama", form, layers=1)
    assert run(model, "reshape-results").digest() == model.digest()


def test_an_output_of_the_input_of_the_logits_is_reshaped():
    model = tiny_model("llama", "openvino", layers=1)
    rewriter = model.rewriter()
    logits = model.graph.producer(model.graph.writes["logits"].source())
    assert logits.op == "MatMul"
    rewriter.output("hidden", rewriter.handle(logits.source()), "f32", [None, None, 32])
    rewriter.finish()
    result = run(model, "reshape-results")
    made = result.graph.producer(result.graph.writes["hidden"].source())
    assert made.op == "Reshape"
    assert result.graph.constant(made.source(1)).tolist() == [0, 0, 0]
    assert_same(model, result, steps=1)
    assert run(result, "reshape-results").digest() == result.digest()
