"""Constants of one model in terms of those of another."""

from __future__ import annotations

import numpy
import onnx

from graphpass.analysis.symbolic import expressions as ex
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.rounding import Half
from graphpass.verify.structure.angles import AngleTables
from graphpass.verify.structure.constants import Constants
from graphpass.verify.structure.weights import WeightDigests

RANDOM = numpy.random.default_rng(0)


FIRST, SECOND = (RANDOM.standard_normal((96, 64), numpy.float32) for _ in range(2))


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


def holding(**constants: numpy.ndarray) -> OnnxModel:
    """Return a model of constants that are outputs."""
    make = onnx.helper
    tensors = [onnx.numpy_helper.from_array(held, name) for name, held in constants.items()]
    nodes = [make.make_node("Identity", [name], [f"{name}_out"]) for name in constants]
    types = {name: make.np_dtype_to_tensor_dtype(held.dtype) for name, held in constants.items()}
    outputs = [make.make_tensor_value_info(f"{name}_out", types[name], held.shape) for name, held in constants.items()]
    graph = make.make_graph(nodes, "constants", [], outputs, tensors)
    return OnnxModel(make.make_model(graph, opset_imports=[make.make_opsetid("", 18)], ir_version=9))
