"""Reductions to channels: right in each row of a batch on the CPU plugin."""

from __future__ import annotations

import numpy
import openvino
import pytest
from openvino import opset13 as ops
from support.attention_graphs import integers
from support.decode import compiled
from support.models import export

import graphpass
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.passes.convert.to_openvino import keep_reduced_axes
from graphpass.verify import compare

CHANNELS, WINDOW = 6, 4

RANDOM = numpy.random.default_rng(0)

FACTORS, BIAS = (RANDOM.standard_normal(CHANNELS).astype(numpy.float32) for _ in range(2))


def model(axis: int = 2, keep_dims: bool = False) -> openvino.Model:
    """A sum of ``[batch, channels, window]`` over one axis, with a factor and a bias for each channel."""
    window = ops.parameter([-1, CHANNELS, WINDOW], openvino.Type.f32)
    total = ops.reduce_sum(window, integers(axis), keep_dims)
    total.output(0).set_names({"sum"})
    if axis == 2 and not keep_dims:
        total = ops.add(ops.multiply(total, ops.constant(FACTORS)), ops.constant(BIAS))
    return openvino.Model([ops.result(total)], [window], "reduced")


def test_each_row_is_right():
    given = RANDOM.standard_normal([3, CHANNELS, WINDOW]).astype(numpy.float32)
    mended = model()
    keep_reduced_axes(OpenVINOModel(mended))
    numpy.testing.assert_allclose(compiled(mended)(given)[0], given.sum(2) * FACTORS + BIAS, atol=1e-5)


def test_the_plugin_still_miscomputes_reductions():
    given = RANDOM.standard_normal([3, CHANNELS, WINDOW]).astype(numpy.float32)
    found, expected = compiled(model())(given)[0], given.sum(2) * FACTORS + BIAS
    assert abs(found - expected).max() > 1e-2


def test_names_of_tensors_stay():
    mended = model()
    keep_reduced_axes(OpenVINOModel(mended))
    (squeeze,) = (op for op in mended.get_ops() if op.get_type_name() == "Squeeze")
    assert squeeze.output(0).get_names() == {"sum"}
    assert list(squeeze.output(0).get_partial_shape())[1] == CHANNELS


@pytest.mark.parametrize(("axis", "keep_dims"), [(1, False), (2, True)])
def test_other_reductions_are_unchanged(axis, keep_dims):
    other = model(axis, keep_dims)
    before = [op.get_type_name() for op in other.get_ordered_ops()]
    keep_reduced_axes(OpenVINOModel(other))
    assert [op.get_type_name() for op in other.get_ordered_ops()] == before


def test_a_batch_of_a_model_with_convolutions_as_sums():
    source = graphpass.load(export("mamba", "onnx-raw"))
    candidate = graphpass.PassManager(graphpass.get_target("cpu").pipeline(source)).run(source).model
    comparison = compare(source, candidate, steps=2)
    assert comparison.passed, comparison.summary()
    assert "batch of 3" in comparison.sequences[2].description
