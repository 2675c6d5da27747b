"""Faults that wait for a batch, a row, a token id, a length or a row of a table."""

import pytest
from mutants import triggers
from mutants.faults import faults
from support.loaded import onnx_model, openvino_model

from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse_target
from graphpass.verify import compare, compare_models

assert triggers


@pytest.fixture(scope="module")
def llama():
    model = onnx_model("llama")
    return model, PassManager(parse_target("cpu").pipeline(model)).run(model).model


@pytest.mark.parametrize(
    "kind",
    [
        "logits of batches from 5 on",
        "logits of rows from the third on",
        "logits if token 7 is fed",
        "logits of rows with more than 8 pads",
        "logits of 37 new tokens",
        "logits from 128 new tokens on",
        "logits after a past of 77",
        "a beam index beyond 1",
        "values of rows from the third on halved",
    ],
)
def test_triggers_are_found(llama, kind):
    reference, result = llama
    fault = next(fault for fault in faults(result) if fault.kind == kind)
    found = compare(reference, fault.put_into(result), steps=3)
    assert not found.passed, found.summary()


def test_all_rows_of_tables_are_compared():
    model = onnx_model("llama")
    result = PassManager(parse_target("ort").pipeline(model)).run(model).model
    passed = compare(model, result, steps=1)
    assert passed.passed, passed.summary()
    assert passed.reach is not None
    assert passed.reach.swept == 512
    fault = next(fault for fault in faults(result) if fault.kind == "rows 300 to 329 of a table of positions negated")
    found = compare(model, fault.put_into(result), steps=1)
    assert found.divergence is not None
    assert found.divergence.place is not None
    assert "alone multiplies query or keys at positions from 0 on" in found.divergence.reason


@pytest.mark.parametrize("model", [onnx_model("mistral_sw8"), openvino_model("llama")], ids=["onnx", "openvino"])
def test_omitted_lengths_are_reported(model, monkeypatch):
    """Two lengths of a window or threshold, of which the double is too long."""
    changed = model.clone()
    rewriter = changed.rewriter()
    write, mask = rewriter.under("threshold"), changed.graph.parameters["attention_mask"]
    is_long = write.op("GreaterEqual", write.size(mask, 1), 150)
    kept = write.op("Multiply", mask, write.op("Select", is_long, [1], [1]))
    rewriter.redirect_uses(mask, kept, lambda use: use.node.op != "ShapeOf")
    rewriter.finish()
    changed.mark_edited()
    monkeypatch.setattr(compare_models, "_MOST_TOKENS", 200)
    found = compare(model, changed, steps=1)
    assert found.passed, found.summary()
    described = [run.description for run in found.sequences]
    assert "around 150, prompt of 149 tokens" in described
    assert "prompts of 300 tokens around 150: too much work for whole models" in found.skipped
    monkeypatch.setattr(compare_models, "_MOST_TOKENS", 100)
    found = compare(model, changed, steps=1)
    assert {f"prompts of {count} tokens around 150: too much work for whole models" for count in (149, 150, 300)} <= {
        *found.skipped
    }
