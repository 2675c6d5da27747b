"""Attributes of ONNX operators by neutral names, with defaults."""

from __future__ import annotations

import pytest
from dialects.onnx.graphs_of_nodes import graph_of
from onnx import helper


@pytest.mark.parametrize(
    ("op", "inputs", "given", "opset", "stated"),
    [
        ("Gather", ["x", "ids"], {}, 21, {"axis": 0}),
        ("Softmax", ["x"], {}, 21, {"axis": 2}),
        ("Softmax", ["x"], {}, 12, {"axis": 1, "flattens": True}),
        ("Softmax", ["x"], {"axis": -1}, 12, {"axis": 2}),
        ("Transpose", ["x"], {}, 21, {"order": (2, 1, 0)}),
        ("Unsqueeze", ["x", "last"], {}, 21, {"axes": (3,)}),
        ("Squeeze", ["ids", "last"], {}, 21, {"axes": (1,)}),
        ("Reshape", ["x", "last"], {"allowzero": 1}, 21, {"special_zero": False}),
        ("ReduceSum", ["x"], {"keepdims": 0}, 21, {"axes": (0, 1, 2), "keeps_axes": False}),
        ("ReduceSum", ["x"], {"noop_with_empty_axes": 1}, 21, {"axes": (), "keeps_axes": True}),
        ("ReduceMax", ["x", "last"], {}, 21, {"axes": (2,)}),
        ("ReduceMean", ["x"], {"axes": [-1]}, 17, {"axes": (2,)}),
        ("TopK", ["x", "last"], {"largest": 0, "sorted": 0}, 21, {"axis": 2, "mode": "min", "sort": "none"}),
        ("ScatterElements", ["x", "ids", "x"], {"reduction": "add"}, 21, {"axis": 0, "reduction": "sum"}),
        ("Pad", ["x", "last"], {"mode": "constant"}, 21, {}),
        ("Pad", ["x", "last"], {"mode": "edge"}, 21, {"pad_mode": "edge"}),
        ("Pad", ["x", "last"], {"mode": b"\xff"}, 21, {"pad_mode": "\ufffd"}),
        ("Trilu", ["x"], {}, 21, {"upper": True}),
        ("ConstantOfShape", ["last"], {}, 21, {"value": 0.0}),
    ],
)
def test_attributes_have_neutral_names_and_defaults(op, inputs, given, opset, stated):
    outputs = ["y", "places"] if op == "TopK" else ["y"]
    graph = graph_of(helper.make_node(op, inputs, outputs, **given), opset=opset, last=[-1])
    assert graph.producer(graph.writes["y"].source()).attributes == stated


@pytest.mark.parametrize(
    ("given", "stated"),
    [
        ({}, {"alpha": 1.0, "transpose_a": False, "transpose_b": False}),
        ({"transB": 1, "alpha": 0.5}, {"alpha": 0.5, "transpose_a": False, "transpose_b": True}),
        ({"transB": 1, "transBatchA": 1}, {"alpha": 1.0}),
    ],
)
def test_a_fused_product_that_transposes_batches_has_no_flags(given, stated):
    (node,) = graph_of(helper.make_node("FusedMatMul", ["x", "x"], ["y"], domain="com.microsoft", **given)).of_op(
        "FusedMatMul"
    )
    assert node.attributes == stated
