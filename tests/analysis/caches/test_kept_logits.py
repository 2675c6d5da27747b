"""Inputs with the number of last tokens whose logits are computed, by dataflow."""

import pytest
from support.loaded import exported, onnx_model, run_once

from graphpass.analysis.caches.kept_logits import kept_logits
from graphpass.passes.convert.fix_input import FixInput
from graphpass.runtime.sessions.inputs import idle_inputs
from graphpass.verify import compare


def kept(model, name, negated=True, stop=2**63 - 1):
    """Slices hidden states from the negated input ``name``, as PyTorch traces ``hidden[:, -n:]``."""
    rewriter = model.rewriter()
    head = model.graph.producer(model.graph.writes["logits"].source())
    count = rewriter.input(name, "i64", [])
    start = rewriter.under("cut").op("Negative", count) if negated else count
    start = rewriter.under("cut").op("Unsqueeze", start, axes=[0])
    rewriter.redirect(head, 0, rewriter.under("cut").slice(head.source(), start, stop, 1, label="last"))
    rewriter.finish()
    return model


@pytest.mark.parametrize("name", ["onnx::Neg_7", "num_logits_to_keep"])
def test_a_negated_start_keeps_the_last_tokens(name):
    model = kept(onnx_model("llama"), name)
    assert kept_logits(model.graph) == {name}
    assert idle_inputs(model) == (name,)
    fixed = run_once(model, FixInput(input=name)).model
    assert compare(model, fixed, steps=2).passed
    assert compare(exported("llama/onnx"), model, steps=2).passed


@pytest.mark.parametrize("options", [{"negated": False}, {"stop": 3}])
def test_other_slices_are_no_setting(options):
    assert kept_logits(kept(onnx_model("llama"), "start", **options).graph) == frozenset()
