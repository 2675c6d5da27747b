"""Test the operators that the pass takes, and the lowerings that it runs."""

from __future__ import annotations

import pytest
from onnx import TensorProto, helper
from support.loaded import onnx_model

from graphpass import PassManager, parse
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.frontend import LOWERED
from graphpass.errors import UnsupportedError, UsageError
from graphpass.passes.lower.lower_operators import LOWERINGS, LowerOperators


def test_hints_know_all_lowerings() -> None:
    assert {lowering.operator for lowering in LOWERINGS.values()} == LOWERED
    assert LowerOperators().only == tuple(LOWERINGS)


def test_option_only_restricts_the_operators() -> None:
    result = PassManager(parse("lower-operators{only=[group-query-attention]}")).run(onnx_model("lfm2", "onnx-genai"))
    assert isinstance(result.model, OnnxModel)
    kinds = {node.op_type for node in result.model.proto.graph.node}
    assert "CausalConvWithState" in kinds
    assert "GroupQueryAttention" not in kinds


def test_names_are_checked() -> None:
    with pytest.raises(UsageError, match="causal-conv"):
        parse("lower-operators{only=[causal-convs]}")


def branching(domain: str) -> OnnxModel:
    """A MoE in both branches of an If."""
    info = helper.make_tensor_value_info
    node = helper.make_node("MoE", ["x", "x", "x"], ["y"], "experts", domain=domain)
    body = helper.make_graph([node], "body", [], [info("y", TensorProto.FLOAT, None)])
    choice = helper.make_node("If", ["flag"], ["z"], then_branch=body, else_branch=body)
    inputs = [info("flag", TensorProto.BOOL, []), info("x", TensorProto.FLOAT, [2, 3, 4])]
    graph = helper.make_graph([choice], "main", inputs, [info("z", TensorProto.FLOAT, None)])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(domain, 1)]
    return OnnxModel(helper.make_model(graph, opset_imports=opsets, ir_version=10))


def test_operators_in_bodies_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"GP341: .* experts cannot be lowered: it is in a body"):
        PassManager([LowerOperators()]).run(branching("com.microsoft"))


def test_namesakes_of_other_domains_are_left() -> None:
    assert not PassManager([LowerOperators()]).run(branching("my.own")).changed
