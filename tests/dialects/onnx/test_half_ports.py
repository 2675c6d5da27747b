"""Inputs and outputs of operators that support 16-bit types, by their schemas."""

import onnx
import pytest
from dialects.onnx.graphs_of_nodes import graph_of
from onnx import helper

from graphpass.dialects.onnx.half_ports import HalfPorts, half_ports


def ports(op: str, count: int = 1, half: str = "f16", opset: int = 21, domain: str = "", outputs: int = 1, **given):
    names = [f"y{place}" for place in range(outputs)]
    node = helper.make_node(op, ["x"] * count, names, domain=domain, **given)
    (made,) = [each for each in graph_of(node, opset=opset).nodes if getattr(each.native, "op_type", "") == op]
    found = half_ports(made, opset, half)
    return set(found.inputs), set(found.outputs)


@pytest.mark.parametrize(
    ("op", "count", "expected"),
    [
        ("MatMul", 2, ({0, 1}, {0})),
        ("Where", 3, ({1, 2}, {0})),
        ("Gather", 2, ({0}, {0})),
        ("Equal", 2, ({0, 1}, set())),
        ("Pow", 2, ({0, 1}, {0})),
        ("Range", 3, (set(), set())),
        ("NonZero", 1, ({0}, set())),
        ("Shape", 1, ({0}, set())),
    ],
)
def test_ports_of_one_type_parameter(op, count, expected):
    assert ports(op, count) == expected


def test_operators_without_a_kernel_in_bf16():
    assert ports("Clip", half="f16") == ({0}, {0})
    assert ports("Clip", half="bf16") == (set(), set())
    assert ports("Gelu", half="bf16") == ({0}, {0})


@pytest.mark.parametrize(
    ("op", "count", "outputs", "expected"),
    [
        ("MatMulNBits", 3, 1, ({0, 1, 2}, {0})),
        ("LinearAttention", 5, 2, ({0, 1, 2, 4}, {0})),
        ("SkipSimplifiedLayerNormalization", 3, 4, ({0, 1, 2}, {0, 3})),
        ("Unheard", 1, 1, (set(), set())),
    ],
)
def test_operators_of_onnxruntime(op, count, outputs, expected):
    assert ports(op, count, domain="com.microsoft", outputs=outputs) == expected


def test_operators_with_bodies_stay():
    body = helper.make_graph([helper.make_node("Identity", ["x"], ["own"])], "b", [], [onnx.ValueInfoProto(name="own")])
    node = helper.make_node("If", ["flag"], ["y"], then_branch=body, else_branch=body)
    (made,) = graph_of(node).of_op("If")
    assert half_ports(made, 21, "f16") == HalfPorts()
