"""Models before and after simplify-shapes."""

from __future__ import annotations

import functools

import openvino
from openvino import opset13 as ops

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.io import load
from graphpass.passes.attention.fuse_attention import FuseAttention
from graphpass.passes.convert.to_openvino import ToOpenVINO
from graphpass.passes.masks.expose_window import ExposeWindow
from graphpass.passes.shapes.simplify_shapes import SimplifyShapes
from support.attention_graphs import integers
from support.models import export
from support.pipelines import run_passes


@functools.cache
def before(name: str, variant: str = "onnx") -> OpenVINOModel:
    model = load(export(name, variant))
    lead = [ToOpenVINO()] if variant == "onnx" else []
    model = PassManager([*lead, FuseAttention(), ExposeWindow()]).run(model).model
    assert isinstance(model, OpenVINOModel)
    return model


def simplified(model: OpenVINOModel, **options: bool) -> tuple[OpenVINOModel, object]:
    return run_passes(model, SimplifyShapes(**options))


def dimension(x: openvino.Node, axis: int) -> openvino.Node:
    return ops.gather(ops.shape_of(x), integers(axis), ops.constant(0))


def made(outputs: dict[str, openvino.Node], **inputs: openvino.Node) -> OpenVINOModel:
    results = []
    for name, output in outputs.items():
        results.append(ops.result(output))
        results[-1].output(0).set_names({name})
    for name, parameter in inputs.items():
        parameter.output(0).set_names({name})
    return OpenVINOModel(openvino.Model(results, [*inputs.values()], "made"))
