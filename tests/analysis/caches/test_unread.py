"""States that a model returns, and does not read."""

import pytest

import graphpass
from graphpass.analysis.caches.unread import unread_states
from graphpass.errors import UnsupportedError
from graphpass.jobs.pipelines import pipeline_for
from graphpass.testing import parse_model

MODEL = """
%input_ids = Parameter : i64[batch, length]
%past = Parameter : {past}
%words = Constant : f32[9, 8]
%embedded = Gather(%words, %input_ids) {{axis=0}}
%sum = ReduceSum(%embedded) {{axes=[1], keep=true}}
%first = Transpose(%sum) {{order=[0, 2, 1]}}
%state = {state}
Result(%embedded) {{name=logits}}
Result(%state) {{name=present}}
"""


@pytest.mark.parametrize(
    ("past", "state", "found"),
    [
        ("f32[n, a, b]", "Negative(%first)", ("past",)),
        ("f32[batch, 8, 1]", "Negative(%first)", ("past",)),
        ("f32[n, heads, slots, size]", "Unsqueeze(%embedded) {axes=[1]}", ("past",)),
        ("f32[batch, 8, 1]", "Add(%first, %past)", ()),
        ("f32[batch, 8, 3]", "Negative(%first)", ()),
        ("f32[batch, 8]", "Negative(%first)", ()),
        ("f32[batch, length, 8]", "Negative(%embedded)", ()),
    ],
    ids=["symbolic", "fixed", "keys", "read", "other size", "other rank", "hidden states"],
)
def test_inputs_of_the_form_of_a_state(past, state, found):
    model = parse_model(MODEL.format(past=past, state=state), "onnx")
    assert unread_states(model) == found


@pytest.mark.parametrize("target", ["cpu", "ort"])
def test_each_target_refuses_them(target):
    model = parse_model(MODEL.format(past="f32[n, a, b]", state="Negative(%first)"), "onnx")
    with pytest.raises(UnsupportedError, match="no operator reads the states past") as raised:
        pipeline_for(graphpass.get_target(target), model)
    assert raised.value.id == "GP328"
