"""Models run once on random inputs, and outputs beside others."""

import numpy
import pytest

from graphpass.errors import UnsupportedError
from graphpass.ir.text.parser import parse_text
from graphpass.testing import parse_model, tiny_model
from graphpass.verify.evaluate import accepts_feeds, difference_on, differing, evaluate, noise_for, step_for

TEXT = """%x = Parameter : f32[batch, 4]
%k = Parameter : i64[n, 2]
%y = Multiply(%x, 2.0) : f32[batch, 4]
Result(%y) {name=y}
%j = Abs(%k) : i64[n, 2]
Result(%j) {name=j}"""


def test_noise_has_the_declared_shapes_and_is_the_same_every_time():
    feeds = noise_for(parse_text(TEXT), {"batch": 5})
    assert {name: (array.shape, array.dtype.name) for name, array in feeds.items()} == {
        "x": ((5, 4), "float32"),
        "k": ((3, 2), "int64"),
    }
    again = noise_for(parse_text(TEXT), {"batch": 5})
    assert all(numpy.array_equal(feeds[name], again[name]) for name in feeds)


@pytest.mark.parametrize("dialect", ["onnx", "openvino"])
def test_a_step_has_a_past_and_several_new_tokens(dialect):
    model = tiny_model("llama", dialect, layers=1)
    feeds = step_for(model)
    shapes = {name: array.shape for name, array in feeds.items()}
    assert shapes == {
        "input_ids": (1, 3),
        "attention_mask": (1, 6),
        "position_ids": (1, 3),
        "past.0.key": (1, 2, 3, 8),
        "past.0.value": (1, 2, 3, 8),
    }
    assert feeds["position_ids"].tolist() == [[3, 4, 5]]
    outputs = evaluate(model, feeds)
    assert outputs["logits"].shape == (1, 3, 64)
    assert outputs["present.0.key"].shape == (1, 2, 6, 8)


def test_models_without_variables_accept_feeds():
    model = tiny_model("llama", "openvino", layers=1)
    feeds = step_for(model)
    assert accepts_feeds(model, [*feeds, "more"])
    assert not accepts_feeds(model, list(feeds)[1:])
    stateful = tiny_model("llama", "stateful", layers=1)
    assert not accepts_feeds(stateful, [port.name for port in stateful.inputs])


def test_the_first_different_output_is_reported():
    model = parse_model(TEXT)
    feeds = noise_for(parse_text(TEXT))
    reference = evaluate(parse_model(TEXT), feeds)
    assert difference_on(reference, model, {**feeds, "more": feeds["x"]}) is None
    other = parse_model(TEXT.replace("2.0", "2.01"))
    assert difference_on(reference, other, feeds).startswith("output y[0, 0]: ")
    assert difference_on({**reference, "z": reference["y"]}, model, feeds) == "output z is missing"


def test_a_model_that_does_not_run_is_a_difference():
    text = """%x = Parameter : f32[batch, 4]
%s = Reshape(%x, [3, 5])
Result(%s) {name=y}"""
    model, feeds = parse_model(text), {"x": numpy.ones((2, 4), numpy.float32)}
    assert difference_on({"y": feeds["x"]}, model, feeds).startswith("the result does not run: ")
    with pytest.raises(UnsupportedError) as error:
        evaluate(model, feeds)
    assert error.value.id == "GP322"


@pytest.mark.parametrize(("dtype", "share"), [("f4", 1e-3), ("f2", 2e-2)])
def test_the_tolerance_follows_type_and_size_of_the_output(dtype, share):
    expected = numpy.full(8, 100, dtype)
    assert differing("y", expected, (expected * (1 + share)).astype(dtype)) is None
    assert differing("y", expected, (expected * (1 + 4 * share)).astype(dtype)) is not None
    small = expected.copy()
    small[3] = 0.01 * 100 * share
    assert differing("y", expected, small).startswith("output y[3]: ")
    one_zero = expected.copy()
    one_zero[3] = 0
    assert differing("y", one_zero, small) is None
