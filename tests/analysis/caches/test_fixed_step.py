"""The number of new tokens that an export fixes, and its refusal by each target."""

import pytest

import graphpass
from graphpass.analysis.caches.fixed_step import fixed_past, fixed_step, single_token
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.errors import UnsupportedError
from graphpass.jobs.pipelines import pipeline_for
from graphpass.testing import parse_model, tiny_model

MODEL = """
%input_ids = Parameter : i64[{tokens}]
%past = Parameter : f32[2, 2, {past}, 8]
%words = Constant : f32[9, 2, 8]
%embedded = Gather(%words, %input_ids) {{axis=0}}
%heads = Transpose(%embedded) {{order=[0, 2, 1, 3]}}
%present = Concat(%past, %heads) {{axis=2}}
%sum = ReduceSum(%embedded) {{axes=[3], keep=false}}
%logits = {logits}
Result(%logits) {{name=logits}}
Result(%present) {{name=present}}
"""


def model(tokens: str, past: str, logits: str) -> graphpass.Model:
    return parse_model(MODEL.format(tokens=tokens, past=past, logits=logits), "onnx")


@pytest.mark.parametrize(
    ("tokens", "past", "logits", "expected"),
    [
        ("2, 3", "4", "Negative(%sum)", 3),
        ("batch, length", "4", "Reshape(%sum, [2, 3, 2])", 3),
        ("2, 1", "p", "Reshape(%sum, [2, 1, 2])", None),
        ("batch, length", "p", "Negative(%sum)", None),
    ],
    ids=["tokens", "logits", "one", "open"],
)
def test_a_fixed_number_of_tokens_is_found(tokens, past, logits, expected):
    assert fixed_step(model(tokens, past, logits)) == expected


@pytest.mark.parametrize("target", ["cpu", "ort"])
def test_each_target_refuses_it(target):
    with pytest.raises(UnsupportedError, match="each step has exactly 3 tokens") as raised:
        pipeline_for(graphpass.get_target(target), model("2, 3", "4", "Negative(%sum)"))
    assert raised.value.id == "GP329"


@pytest.fixture(scope="module")
def one_step():
    """A step of one token after four, as onnxsim writes it with overwritten input shapes."""
    proto = tiny_model("llama", "onnx", layers=1).proto
    sizes = {"batch": 1, "length": 1, "past": 4, "total": 5}
    for port in proto.graph.input:
        for size in port.type.tensor_type.shape.dim:
            if size.dim_param:
                size.dim_value = sizes[size.dim_param]
    return OnnxModel(proto)


def test_a_fixed_number_of_past_positions_is_refused(one_step):
    assert fixed_past(one_step) == 4
    with pytest.raises(UnsupportedError, match="each step follows exactly 4 positions") as raised:
        pipeline_for(graphpass.get_target("cpu"), one_step)
    assert raised.value.id == "GP329"
    assert fixed_past(tiny_model("llama", "onnx", layers=1)) is None


SQUEEZED = "Squeeze(%sum) {{axes=[1]}}"


@pytest.mark.parametrize(
    ("tokens", "logits", "expected"),
    [("batch, length", SQUEEZED, True), ("batch, 1", SQUEEZED, False), ("batch, length", "Negative(%sum)", False)],
    ids=["open", "one token", "kept"],
)
def test_an_operator_that_requires_one_token_is_found(tokens, logits, expected):
    found = single_token(model(tokens, "p", logits.format()))
    assert (found is not None) == expected


def test_models_of_single_tokens_that_declare_others_are_refused():
    with pytest.raises(UnsupportedError, match="runs single tokens only") as raised:
        pipeline_for(graphpass.get_target("ort"), model("batch, length", "p", SQUEEZED.format()))
    assert raised.value.id == "GP332"
