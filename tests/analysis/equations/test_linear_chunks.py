"""Linear attention of chunks: the roles of its tensors, and regions that compute something else."""

from __future__ import annotations

import numpy
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.models import exporters

import graphpass
from graphpass.analysis.equations.chunk_regions import find_chunks
from graphpass.analysis.equations.linear_attention import find_linear_attention
from graphpass.analysis.equations.linear_equation import LinearAttention
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.ir.miss import Miss


def exported(family: str = "qwen3_5_text") -> OnnxModel:
    model = graphpass.load(exporters("transformers-onnx", family))
    assert isinstance(model, OnnxModel)
    return model


def test_operands_of_chunks_are_found():
    (found,) = exported().analysis(find_linear_attention).values()
    assert isinstance(found, LinearAttention)
    assert (found.rule, found.heads, found.groups, found.key_dim, found.value_dim) == ("gated_delta", 4, 1, 16, 16)
    assert found.decay is not None
    assert found.decay.functions == ("Exp",)
    tensors = [role.source.shape for role in (found.query, found.key, found.value, found.decay, *found.betas)]
    assert [len(shape) for shape in tensors] == [4, 4, 4, 3, 3]


def test_a_skip_of_the_state_is_found():
    (found,) = exported("nemotron_h").analysis(find_linear_attention).values()
    assert isinstance(found, LinearAttention)
    assert (found.rule, found.heads, found.betas) == ("gated", 8, ())
    assert found.skip is not None
    assert (len(found.skip.source.shape), found.skip.factor.shape) == (4, (8, 1))


@pytest.mark.parametrize("operator", ["CumSum", "Exp", "Trilu", "Where"])
def test_other_numbers_are_not_linear_attention(operator):
    """As without sums of decays, a decay, the mask, or the diagonal of zeros."""
    model = exported()
    (chunk,) = find_chunks(model.graph)
    inside = model.graph.backward([chunk.present], lambda node: () if node.op == "Pad" else node.inputs)
    region = {node.name for node in inside}
    node = next(node for node in model.proto.graph.node if node.op_type == operator and node.name in region)
    kept = node.input[1 if operator == "Where" else 0]
    node.op_type = "Identity"
    del node.input[:], node.attribute[:]
    node.input.append(kept)
    model.mark_edited()
    (found,) = model.analysis(find_linear_attention).values()
    assert isinstance(found, Miss)


@pytest.mark.parametrize("count", [1, 3, 6])
def test_other_regions_are_misses(count):
    """The sum of padded tensors, added to a state."""
    node, names = helper.make_node, [f"x{number}" for number in range(count)]
    nodes = [
        node("Shape", ["x0"], ["length"], start=1, end=2),
        node("Mod", ["length", "chunk"], ["rest"]),
        node("Sub", ["chunk", "rest"], ["lacks"]),
        node("Concat", ["zeros", "lacks", "zero", "zero"], ["pads"], axis=0),
        *(node("Pad", [name, "pads"], [f"{name} padded"]) for name in names),
        node("Sum", [f"{name} padded" for name in names], ["sum"]),
        node("ReduceSum", ["sum", "axis"], ["total"], keepdims=0),
        node("Unsqueeze", ["total", "axis"], ["row"]),
        node("Add", ["past", "row"], ["present"]),
    ]
    held = {"chunk": [8], "zeros": [0] * 5, "zero": [0], "axis": [1]}
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["b", "n", 2, 4]) for name in names]
    state = ["b", 2, 2, 4]
    graph = helper.make_graph(
        nodes,
        "sum",
        [*ports, helper.make_tensor_value_info("past", TensorProto.FLOAT, state)],
        [helper.make_tensor_value_info("present", TensorProto.FLOAT, state)],
        [numpy_helper.from_array(numpy.array(value), name) for name, value in held.items()],
    )
    model = OnnxModel(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    (found,) = model.analysis(find_linear_attention).values()
    assert isinstance(found, Miss)
