"""The pass `fuse-functions`, on forms of several exporters."""

from __future__ import annotations

import math

import numpy
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.loaded import exported, ran

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.verify import compare


@pytest.mark.slow
@pytest.mark.parametrize(("name", "count"), [("gemma3_text", 4), ("gpt2", 2), ("gptj", 2)])
def test_fused_models_compute_the_same(name, count):
    result = ran(exported(f"{name}/onnx"), "fuse-functions")
    assert result.records[-1].result.statistics["activations fused"] == count
    assert sum(node.op_type == "FastGelu" for node in result.model.proto.graph.node) == count
    assert not any("mlp" in node.name for node in result.model.graph.of_op("Tanh"))
    assert compare(exported(f"{name}/onnx"), result.model, steps=2).passed


def gelu(form: str, factor: float = 0.044715):
    numbers = {"half": 0.5, "one": 1.0, "three": 3.0, "factor": factor, "root": math.sqrt(2 / math.pi)}
    cubic = {
        "power": ["c = Pow(x, three)", "d = Mul(c, factor)", "e = Add(x, d)"],
        "products": ["b = Mul(x, x)", "c = Mul(x, b)", "d = Mul(factor, c)", "e = Add(x, d)"],
        "factored": ["b = Mul(x, x)", "c = Mul(factor, b)", "d = Add(one, c)", "e = Mul(x, d)"],
    }[form]
    lines = [*cubic, "f = Mul(e, root)", "g = Tanh(f)", "h = Add(g, one)", "i = Mul(x, h)", "y = Mul(i, half)"]
    nodes = [
        helper.make_node(call.split("(")[0], call.split("(")[1].rstrip(")").split(", "), [result])
        for result, call in (line.split(" = ") for line in lines)
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 8]) for name in ("x", "y")]
    held = [numpy_helper.from_array(numpy.float32(value), name) for name, value in numbers.items()]
    graph = helper.make_graph(nodes, form, ports[:1], ports[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("form", ["power", "products", "factored"])
def test_each_form_is_one_operator(form):
    model = OnnxModel(gelu(form))
    result = ran(model, "fuse-functions").model
    assert [node.op_type for node in result.proto.graph.node] == ["FastGelu"]
    x = numpy.linspace(-6, 6, 64, dtype=numpy.float32).reshape(8, 8)
    before, after = (
        onnxruntime.InferenceSession(one.proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(
            None, {"x": x}
        )
        for one in (model, result)
    )
    numpy.testing.assert_allclose(before[0], after[0], atol=1e-6)


def test_other_numbers_are_left():
    assert not ran(OnnxModel(gelu("power", factor=0.05)), "fuse-functions").records[-1].result.changed
