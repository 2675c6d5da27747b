"""Lengths, positions and masks of a step, written from the shapes of tokens and mask."""

from __future__ import annotations

import numpy
import pytest

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.errors import UnsupportedError
from graphpass.passes.attention.step_builder import StepBuilder
from graphpass.runtime.backends.device import Device
from graphpass.runtime.backends.request import open_request
from graphpass.testing import parse_model, tiny_model

BATCH, PAST, LENGTH = 2, 3, 4
TOTAL = PAST + LENGTH
MASK = numpy.array([[0, 0, 1, 1, 1, 1, 1], [1] * TOTAL])
FEEDS = {
    "input_ids": numpy.zeros((BATCH, LENGTH), numpy.int64),
    "attention_mask": MASK,
    "position_ids": numpy.zeros((BATCH, LENGTH), numpy.int64),
    "past.0.key": numpy.zeros((BATCH, 2, PAST, 8), numpy.float32),
    "past.0.value": numpy.zeros((BATCH, 2, PAST, 8), numpy.float32),
    "past_len": numpy.array([PAST]),
}


def maskless():
    """Return a model without an input for the mask."""
    model = tiny_model("llama", layers=1)
    rewriter = model.rewriter()
    mask = rewriter.constant(numpy.ones((BATCH, TOTAL), numpy.int64), "i64", "mask_of_ones")
    rewriter.redirect_uses(model.graph.parameters["attention_mask"], mask)
    rewriter.drop_input("attention_mask")
    rewriter.finish()
    return model


def written(model, make, element_type="i64", rank=1, **settings):
    """Return what ``make`` writes with a builder, computed in a step."""
    model = model.clone()
    rewriter = model.rewriter()
    rewriter.output("made", make(StepBuilder(model, rewriter, **settings)), element_type, [None] * rank)
    rewriter.finish()
    names = {port.name for port in model.inputs}
    return open_request(model, Device()).infer({name: array for name, array in FEEDS.items() if name in names})["made"]


@pytest.mark.parametrize("form", ["onnx", "openvino", "maskless"])
@pytest.mark.parametrize(
    ("length", "expected"), [("batch", BATCH), ("length", LENGTH), ("past", PAST), ("total", TOTAL)]
)
def test_lengths_are_vectors_and_scalars(form, length, expected):
    model = maskless() if form == "maskless" else tiny_model("llama", form, layers=1)
    assert written(model, lambda step: step.of(length)).tolist() == [expected]
    assert written(model, lambda step: step.scalar(length), rank=0).tolist() == expected


def test_the_past_may_be_an_input():
    found = written(maskless(), lambda step: step.of("total"), adds_input=True)
    assert found.tolist() == [TOTAL]
    assert written(tiny_model("llama", layers=1), lambda step: step.of("past"), adds_input=True).tolist() == [PAST]


@pytest.mark.parametrize("dialect", ["onnx", "openvino"])
def test_slots_and_masks(dialect):
    model = tiny_model("llama", dialect, layers=1)
    keys, queries = numpy.arange(TOTAL)[None, None, None], numpy.arange(PAST, TOTAL)[None, None, :, None]
    numpy.testing.assert_array_equal(written(model, lambda step: step.keys, rank=4), keys)
    numpy.testing.assert_array_equal(written(model, lambda step: step.queries, rank=4), queries)
    numpy.testing.assert_array_equal(written(model, lambda step: step.causal, "boolean", 4), keys <= queries)
    visible = (keys <= queries) & (MASK[:, None, None] != 0)
    numpy.testing.assert_array_equal(written(model, lambda step: step.visible, "boolean", 4), visible)
    numpy.testing.assert_array_equal(written(model, lambda step: step.new_columns, rank=2), MASK[:, -LENGTH:])


def test_each_length_is_written_once():
    model = tiny_model("llama", layers=1)
    rewriter = model.rewriter()
    step = StepBuilder(model, rewriter)
    assert step.of("past") is step.of("past")
    assert step.causal is step.causal


def test_sizes_in_lengths_of_the_step_are_vectors():
    model = tiny_model("llama", layers=1)
    sizes = model.analysis(infer_sizes)
    batch, length = sizes.shape(model.graph.parameters["input_ids"])
    past = sizes.shape(model.graph.parameters["past.0.key"])[2]
    wanted = (batch, ex.add(past, length), ex.add(ex.multiply(ex.number(2), length), ex.number(3)), ex.number(8))
    assert StepBuilder(model, model.rewriter()).knows(wanted)
    assert not StepBuilder(model, model.rewriter()).knows([ex.length("other")])
    assert written(model, lambda step: step.vector(wanted)).tolist() == [BATCH, TOTAL, 2 * LENGTH + 3, 8]


def test_models_without_tokens_are_refused():
    model = parse_model("%x = Parameter : f32[n]\n%y = Relu(%x)\nResult(%y) {name=y}")
    with pytest.raises(UnsupportedError) as error:
        _ = StepBuilder(model, model.rewriter()).tokens
    assert error.value.id == "GP363"
