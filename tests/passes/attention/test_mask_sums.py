"""Sums of the masks of an attention and products of its scales, as ONNX Runtime computes them."""

import numpy
import pytest

from graphpass.analysis.attention.types import Mask, Scale
from graphpass.ir.values import MASKED
from graphpass.passes.attention.mask_sums import MaskSums, write_product
from graphpass.runtime.backends.onnxruntime_request import OnnxRuntimeRequest
from graphpass.testing import parse_model

TEXT = """%kept = Parameter : boolean[2, 1, 3, 4]
%added = Parameter : f32[4]
%merged = Parameter : f32[4, 3, 4]
%two = Parameter : f32[1]
%chosen = Select(%kept, 0.5, -inf)
%y = Add(%added, %chosen)
Result(%y) {name=y}"""
RANDOM = numpy.random.default_rng(0)
FEED = {
    "kept": RANDOM.random([2, 1, 3, 4]) < 0.5,
    "added": numpy.array([0.0, -numpy.inf, 2.0, -1e38], numpy.float32),
    "merged": RANDOM.standard_normal([4, 3, 4]).astype(numpy.float32),
    "two": numpy.array([2.0], numpy.float32),
}
LOWEST = numpy.float32(MASKED)
KEPT = numpy.where(FEED["kept"], numpy.float32(0), LOWEST)
ADDED = FEED["added"].clip(LOWEST)


def written(write):
    """Return what the nodes compute that ``write`` adds to the model."""
    model = parse_model(TEXT)
    rewriter = model.rewriter()
    (select,) = model.graph.of_op("Select")
    values = {**model.graph.parameters, "chosen": select.outputs[0]}
    made = write(rewriter, values)
    rewriter.output("made", made, "f32", ())
    rewriter.finish()
    return model, OnnxRuntimeRequest(model, True).infer(FEED)["made"]


@pytest.mark.parametrize(
    ("masks", "expected"),
    [
        (lambda given: (), numpy.float32(0)),
        (lambda given: (Mask(given["kept"], keeps=True),), KEPT),
        (lambda given: (Mask(given["kept"], keeps=False),), numpy.where(FEED["kept"], LOWEST, numpy.float32(0))),
        (lambda given: (Mask(given["added"]),), ADDED[None]),
        (lambda given: (Mask(given["added"]), Mask(given["kept"], keeps=True)), (ADDED + KEPT).clip(LOWEST)),
        (lambda given: (Mask(given["two"], is_subtracted=True),), numpy.float32([[-2]])),
        (
            lambda given: (Mask(given["two"], scales=(Scale(0.5, True), Scale(given["two"], False))),),
            numpy.float32([[8]]),
        ),
        (lambda given: (Mask(given["merged"], merges_heads=True),), FEED["merged"].reshape(2, 2, 3, 4)),
        (lambda given: (Mask(given["chosen"]),), numpy.where(FEED["kept"], numpy.float32(0.5), LOWEST)),
    ],
)
def test_sums_are_clamped(masks, expected):
    _, found = written(lambda rewriter, given: MaskSums(rewriter).of(masks(given), "f32", 2, "m"))
    numpy.testing.assert_allclose(found, expected)


def test_layers_share_a_sum_unless_the_number_of_heads_differs():
    made = {}

    def write(rewriter, given):
        sums, masks = MaskSums(rewriter), (Mask(given["kept"], keeps=True),)
        for name, heads in (("a", 2), ("b", 2), ("c", 4)):
            made[name] = sums.of(masks, "f32", heads, name)
        return made["c"]

    written(write)
    assert made["a"] is made["b"]
    assert made["a"] is not made["c"]


@pytest.mark.parametrize(
    ("factors", "expected", "operators"),
    [
        (lambda given: (), 1.0, 0),
        (lambda given: (Scale(0.5, False), Scale(4.0, True)), 0.125, 0),
        (lambda given: (Scale(0.5, False), Scale(given["two"], True)), 0.25, 1),
        (lambda given: (Scale(given["two"], False), Scale(given["two"], False)), 4.0, 2),
    ],
)
def test_constant_factors_are_one_number(factors, expected, operators):
    model, found = written(
        lambda rewriter, given: write_product(rewriter.graph, rewriter.under("s"), factors(given), "f32")
    )
    assert found.tolist() == expected
    assert len([*model.graph.of_op("Multiply", "Divide")]) == operators
