"""Heads of keys and values that several heads of the query share, in ONNX's Attention."""

from __future__ import annotations

from onnx import version_converter
from support.loaded import onnx_model

from graphpass import PassManager, parse
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.registry import get_target
from graphpass.verify.compare_models import compare


def fixed() -> OnnxModel:
    """Four heads of the query over two of the caches; the Reshape before the query hides how many it has."""
    newer = OnnxModel(version_converter.convert_version(onnx_model("llama").proto, 24))
    model = PassManager(parse("static-cache{capacity=48}")).run(newer).model
    assert isinstance(model, OnnxModel)
    return model


def test_the_result_computes_the_same_in_both_runtimes() -> None:
    model = fixed()
    result = PassManager(parse("lower-operators")).run(model)
    assert result.changed
    assert isinstance(result.model, OnnxModel)
    (attention, _) = [node for node in result.model.proto.graph.node if node.op_type == "Attention"]
    makers = {name: node.op_type for node in result.model.proto.graph.node for name in node.output}
    assert [makers[name] for name in attention.input[1:3]] == ["Reshape", "Reshape"]
    assert compare(model, result.model, steps=4).passed
    converted = PassManager(parse("lower-operators,to-openvino")).run(result.model).model
    assert compare(model, converted, steps=4).passed


def test_targets_on_openvino_run_the_result() -> None:
    names = [step.name for step in get_target("cpu").pipeline(fixed())]
    assert names.index("lower-operators") < names.index("to-openvino")


def test_a_second_run_changes_nothing() -> None:
    once = PassManager(parse("lower-operators")).run(fixed()).model
    assert not PassManager(parse("lower-operators")).run(once).changed


def test_models_without_the_operator_are_unchanged() -> None:
    assert not PassManager(parse("lower-operators")).run(onnx_model("llama")).changed
