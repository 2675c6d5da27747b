"""Constants are blocks of the other model's constants, or none."""

from __future__ import annotations

import numpy
import onnx
import pytest

from graphpass.analysis.symbolic import expressions as ex
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.rounding import Half
from graphpass.verify.structure import weights
from graphpass.verify.structure.angles import AngleTables
from graphpass.verify.structure.constants import Constants
from graphpass.verify.structure.weights import WeightDigests

RANDOM = numpy.random.default_rng(0)
FIRST, SECOND = (RANDOM.standard_normal((96, 64), numpy.float32) for _ in range(2))


def holding(**constants: numpy.ndarray) -> OnnxModel:
    """Return a model of constants that are outputs."""
    make = onnx.helper
    tensors = [onnx.numpy_helper.from_array(held, name) for name, held in constants.items()]
    nodes = [make.make_node("Identity", [name], [f"{name}_out"]) for name in constants]
    types = {name: make.np_dtype_to_tensor_dtype(held.dtype) for name, held in constants.items()}
    outputs = [make.make_tensor_value_info(f"{name}_out", types[name], held.shape) for name, held in constants.items()]
    graph = make.make_graph(nodes, "constants", [], outputs, tensors)
    return OnnxModel(make.make_model(graph, opset_imports=[make.make_opsetid("", 18)], ir_version=9))


def element(
    made: numpy.ndarray, index: tuple[int, ...], half: Half | None = None, other: OnnxModel | None = None
) -> ex.Expr:
    """Return an element of a constant by those of another model, which has both matrices by default."""
    models = other or holding(first=FIRST, second=SECOND), holding(made=made)
    constants = Constants(AngleTables(), WeightDigests(models)).by_blocks(models[0].graph, half)
    (node,) = models[1].graph.of_op("Constant")
    own = tuple(ex.index(f"x{axis}", ex.number(size)) for axis, size in enumerate(made.shape))
    found = constants.element(models[1].graph, node.outputs[0], own)
    assert found is not None
    return ex.substitute(found, dict(zip(own, map(ex.number, index), strict=True)))


def name_and_place(expr: ex.Expr) -> tuple[object, ...]:
    return expr.args[0].name, *(place.as_number for place in expr.args[1:])


STACKED = numpy.stack([FIRST, SECOND])
INTERLEAVED = numpy.stack([FIRST, SECOND], axis=1).reshape(192, 64)


@pytest.mark.parametrize(
    ("made", "index", "expected"),
    [
        (STACKED, (1, 5, 6), ("second", 5, 6)),
        (STACKED.transpose(0, 2, 1).copy(), (1, 6, 5), ("second", 5, 6)),
        (numpy.concatenate([SECOND, FIRST]), (95, 0), ("second", 95, 0)),
        (numpy.concatenate([SECOND, FIRST]), (96, 0), ("first", 0, 0)),
        (numpy.concatenate([FIRST, SECOND], axis=1), (7, 64), ("second", 7, 0)),
        (FIRST[10:90].copy(), (0, 3), ("first", 10, 3)),
        (INTERLEAVED, (8, 3), ("first", 4, 3)),
        (INTERLEAVED, (9, 3), ("second", 4, 3)),
        (FIRST.astype(numpy.float16).astype(numpy.float32), (0, 0), ("made", 0, 0)),
    ],
)
def test_elements_of_new_constants_equal_the_reference(made, index, expected):
    assert name_and_place(element(made, index)) == expected


@pytest.mark.parametrize("place", [(0, 0, 0), (1, 95, 63), (0, 50, 20)])
def test_a_changed_element_prevents_a_block(place):
    made = STACKED.copy()
    made[place] *= numpy.float32(1.0001)
    assert name_and_place(element(made, place))[0] == "made"


@pytest.mark.parametrize("changed", [None, 0, 150, 299])
def test_rows_longer_than_their_hash_are_compared_in_full(changed):
    wide = RANDOM.standard_normal((16, 300), numpy.float32)
    made = numpy.concatenate([wide[8:], wide[:8]])
    if changed is not None:
        made[7, changed] += 1
    expected = ("wide", 13, 150) if changed is None else ("made", 5, 150)
    assert name_and_place(element(made, (5, 150), other=holding(wide=wide))) == expected


def test_weights_with_equal_bytes_are_not_read_by_value(monkeypatch):
    matrix = RANDOM.standard_normal((96, 64), numpy.float32)
    models = holding(first=matrix, other=FIRST), holding(second=matrix.copy(), changed=FIRST + 1)
    monkeypatch.setattr(weights, "_weight_of", lambda _graph, value: value.name)
    digests = WeightDigests(models)
    known = {
        node.name: digests.of(model.graph, node.outputs[0])
        for model in models
        for node in model.graph.of_op("Constant")
    }
    assert known["first"] == known["second"] != known["other"]
    assert known["changed"] == "changed"


@pytest.mark.parametrize(
    ("made", "index", "expected"),
    [
        (SECOND[None], (0, 5, 6), ("second", 5, 6)),
        (SECOND.T.copy(), (6, 5), ("second", 5, 6)),
        (numpy.concatenate([SECOND, FIRST]), (96, 0), ("first", 0, 0)),
    ],
)
def test_elements_of_f16_constants_are_rounded(made, index, expected):
    stored = made.astype(numpy.float16)
    assert name_and_place(element(stored, index, "f16")) == expected
    assert name_and_place(element(stored, index))[0] == "made"


def test_a_differently_rounded_constant_is_opaque():
    stored = SECOND.astype(numpy.float16)
    stored[5, 6] = numpy.nextafter(stored[5, 6], numpy.float16(9))
    assert name_and_place(element(stored, (5, 6), "f16"))[0] == "made"
