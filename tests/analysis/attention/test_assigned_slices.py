"""Slices that are assigned by a ScatterNDUpdate of flat elements."""

import numpy
import openvino
import pytest
from openvino import opset13, opset15

from graphpass.analysis.attention.assigned_slices import assigned_slice
from graphpass.dialects.openvino.model import OpenVINOModel


def assignment(start: int, stop: int, step: int = 1, *, base: str = "zeros", reduction: str = "none") -> OpenVINOModel:
    """Build ``x[:, :, start:stop:step] = update`` for x ``[batch, 3, 8]``, as OpenVINO's frontend for PyTorch does."""
    update = opset13.parameter([-1, 3, -(-(stop - start) // step)], numpy.float32, name="update")
    other = opset13.parameter([-1, 8, 3], numpy.float32, name="other")
    batch = opset13.gather(opset13.shape_of(update), [0], 0)
    sizes = opset13.concat([batch, opset13.constant([3, 8])], 0)
    whole = opset13.broadcast(numpy.float32(0), sizes) if base == "zeros" else other
    flat_places = opset13.range(0, opset13.reduce_prod(sizes, [0]), 1, output_type="i64")
    part = opset13.slice(opset13.reshape(flat_places, sizes, False), [start], [stop], [step], [2])
    flat, places, updates = (
        opset13.reshape(tensor, shape, False) for tensor, shape in ((whole, [-1]), (part, [-1, 1]), (update, [-1]))
    )
    written = opset15.scatter_nd_update(flat, places, updates, reduction)
    result = opset13.result(opset13.reshape(written, sizes, False))
    return OpenVINOModel(openvino.Model([result], [update, other], "assignment"))


def found(model: OpenVINOModel) -> list[tuple[str, int, int, int]]:
    slices = [assigned_slice(model.graph, node) for node in model.graph.of_op("Reshape")]
    return [(each.update.name, each.axis, each.start, each.stop) for each in slices if each is not None]


@pytest.mark.parametrize(("start", "stop"), [(0, 5), (5, 8), (2, 3)])
def test_a_range_of_an_axis_is_an_assigned_slice(start, stop):
    assert found(assignment(start, stop)) == [("update", 2, start, stop)]


def test_every_second_place_is_not_an_assigned_slice():
    assert found(assignment(0, 8, step=2)) == []


def test_a_tensor_of_other_axes_is_not_an_assigned_slice():
    assert found(assignment(0, 5, base="other")) == []


def test_a_sum_is_not_an_assigned_slice():
    assert found(assignment(0, 5, reduction="sum")) == []
