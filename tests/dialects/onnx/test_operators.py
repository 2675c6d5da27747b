"""Operators have one name in both dialects."""

from __future__ import annotations

import io

import openvino
import pytest
from onnx import TensorProto, helper

from graphpass.analysis.symbolic.table import TABLE
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.operators import NEUTRAL_NAMES
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.ir import operators


def test_no_set_and_no_rule_has_a_name_of_onnx_alone():
    sets = {name: value for name, value in vars(operators).items() if isinstance(value, frozenset | dict)}
    # OpenVINO has an operator Split, too.
    names = NEUTRAL_NAMES.keys() - {"Split"}
    assert not [(name, kind) for name, members in sets.items() for kind in names if kind in members]
    assert not names & TABLE.elements.keys()


@pytest.mark.parametrize("kind", ["Ceil", "GreaterOrEqual", "HardSwish", "LessOrEqual", "Max", "Min", "Softplus"])
def test_frontends_read_the_same_operator(kind):
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "ab"]
    compares = kind.endswith("OrEqual")
    result = helper.make_tensor_value_info("c", TensorProto.BOOL if compares else TensorProto.FLOAT, [2, 3])
    inputs = values if compares or kind in {"Max", "Min"} else values[:1]
    node = helper.make_node(kind, [value.name for value in inputs], ["c"], "node")
    graph = helper.make_graph([node], "graph", inputs, [result])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    native = openvino.Core().read_model(io.BytesIO(proto.SerializeToString()))
    models = OnnxModel(proto), OpenVINOModel(native)
    kinds = [[node.op for node in model.graph.nodes if node.inputs and node.op != "Result"] for model in models]
    assert kinds[0] == kinds[1]
