"""Lengths, positions and masks of a step, written from the shapes of tokens and mask."""

from __future__ import annotations

from functools import partial
from operator import attrgetter

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

#: Writers of a length as a scalar and as a vector.
FORMS = (lambda name, step: step.scalar(name), lambda name, step: step.of(name))


def maskless():
    """Return a model without an input for the mask."""
    model = tiny_model("llama", layers=1)
    rewriter = model.rewriter()
    mask = rewriter.constant(numpy.ones((BATCH, TOTAL), numpy.int64), "i64", "mask_of_ones")
    rewriter.redirect_uses(model.graph.parameters["attention_mask"], mask)
    rewriter.drop_input("attention_mask")
    rewriter.finish()
    return model


def computed(model, makers, **settings):
    """Return what ``makers`` write with one builder, computed in a step; each has an element type and a rank."""
    model = model.clone()
    rewriter = model.rewriter()
    step = StepBuilder(model, rewriter, **settings)
    for name, (make, element_type, rank) in makers.items():
        rewriter.output(f"made {name}", make(step), element_type, [None] * rank)
    rewriter.finish()
    names = {port.name for port in model.inputs}
    results = open_request(model, Device()).infer({name: array for name, array in FEEDS.items() if name in names})
    return {name: results[f"made {name}"] for name in makers}


def written(model, make, **settings):
    """Return one vector that ``make`` writes."""
    return computed(model, {"one": (make, "i64", 1)}, **settings)["one"]


@pytest.mark.parametrize("form", ["onnx", "openvino", "maskless"])
def test_lengths_are_vectors_and_scalars(form):
    model = maskless() if form == "maskless" else tiny_model("llama", form, layers=1)
    lengths = {"batch": BATCH, "length": LENGTH, "past": PAST, "total": TOTAL}
    makers = {f"{name} {rank}": (partial(of, name), "i64", rank) for name in lengths for rank, of in enumerate(FORMS)}
    found = computed(model, makers)
    assert {name: array.tolist() for name, array in found.items()} == {
        f"{name} {rank}": [size] if rank else size for name, size in lengths.items() for rank in (0, 1)
    }


def test_the_past_may_be_an_input():
    found = written(maskless(), lambda step: step.of("total"), adds_input=True)
    assert found.tolist() == [TOTAL]
    assert written(tiny_model("llama", layers=1), lambda step: step.of("past"), adds_input=True).tolist() == [PAST]


@pytest.mark.parametrize("dialect", ["onnx", "openvino"])
def test_slots_and_masks(dialect):
    model = tiny_model("llama", dialect, layers=1)
    keys, queries = numpy.arange(TOTAL)[None, None, None], numpy.arange(PAST, TOTAL)[None, None, :, None]
    expected = {
        "keys": keys,
        "queries": queries,
        "causal": keys <= queries,
        "visible": (keys <= queries) & (MASK[:, None, None] != 0),
        "new_columns": MASK[:, -LENGTH:],
    }
    kinds = {True: "boolean", False: "i64"}
    makers = {name: (attrgetter(name), kinds[array.dtype == bool], array.ndim) for name, array in expected.items()}
    for name, array in computed(model, makers).items():
        numpy.testing.assert_array_equal(array, expected[name], err_msg=name)


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
