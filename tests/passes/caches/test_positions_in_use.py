"""Positions in use of a cache of fixed capacity: lengths, padding and shapes."""

import numpy
import pytest

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.errors import UnsupportedError
from graphpass.passes.caches.positions_in_use import PositionsInUse, refusal
from graphpass.runtime.backends.device import Device
from graphpass.runtime.backends.request import open_request
from graphpass.testing import parse_model, tiny_model

TEXT = """%input_ids = Parameter : i64[b, n]
%attention_mask = Parameter : i64[b, m]
%buffer = Parameter : f32[b, 2, 8, 4]
{}
Result(%y) {{name=y}}
Result(%input_ids) {{name=ids}}"""
FEEDS = {
    "input_ids": numpy.zeros((2, 3), numpy.int64),
    "attention_mask": numpy.ones((2, 5), numpy.int64),
    "buffer": numpy.ones((2, 2, 8, 4), numpy.float32),
}


def computed(users, edit):
    text = TEXT.format(users).replace("Result(%input_ids)", "%same = Abs(%input_ids)\nResult(%same)")
    model = parse_model(text)
    rewriter = model.rewriter()
    edit(model, PositionsInUse(model, rewriter, 8))
    rewriter.finish()
    names = {port.name for port in model.inputs}
    return open_request(model, Device()).infer({name: array for name, array in FEEDS.items() if name in names})["y"]


@pytest.mark.parametrize(
    ("users", "expected"),
    [
        ("%s = ShapeOf(%buffer)\n%y = Gather(%s, [2]) {axis=0}", [5]),
        ("%s = ShapeOf(%buffer)\n%y = Gather(%s, 2) {axis=0}", 5),
        ("%s = ShapeOf(%buffer)\n%y = Abs(%s)", [2, 2, 5, 4]),
        ("%s = ShapeOf(%buffer) {start=1, end=3}\n%y = Abs(%s)", [2, 5]),
        ("%s = ShapeOf(%buffer)\n%y = Gather(%s, [1]) {axis=0}", [2]),
    ],
)
def test_shapes_of_a_buffer_have_the_length_in_use(users, expected):
    def edit(model, positions):
        positions.keep_shape(model.graph.parameters["buffer"], 2, positions.total, None)

    assert computed(users, edit).tolist() == expected


def test_values_are_padded_to_the_capacity():
    def edit(model, positions):
        (result,) = [node for node in model.graph.of_op("Result") if node.name == "y"]
        positions._rewriter.redirect(result, 0, positions.padded(result.source()))

    found = computed("%f = Convert(%attention_mask) {to=f32}\n%y = Relu(%f)", edit)
    assert found.tolist() == [[1, 1, 1, 1, 1, 0, 0, 0]] * 2


def test_models_without_tokens_are_refused():
    model = parse_model("%x = Parameter : f32[n]\n%y = Relu(%x)\nResult(%y) {name=y}")
    with pytest.raises(UnsupportedError, match="which has the length of the new tokens") as error:
        PositionsInUse(model, model.rewriter(), 8)
    assert error.value.id == "GP391"


def test_refusals_name_the_cache():
    (cache, *_) = analyze_caches(tiny_model("llama", layers=1)).caches
    error = refusal(cache, "is read by ReduceSum")
    assert (error.id, error.message) == (
        "GP391",
        "cache past.0.key cannot have a fixed capacity: it is read by ReduceSum",
    )
