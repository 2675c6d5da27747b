"""fix-input: a constant in an input's place, in both dialects."""

import numpy
import pytest
from onnx import TensorProto, helper
from support.loaded import exported

import graphpass
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.errors import UnsupportedError
from graphpass.runtime import open_session


def scaled(shape=(), name="factor") -> OnnxModel:
    """llama, its logits multiplied by an input, which is an output as well."""
    model = exported("llama/onnx").clone()
    assert isinstance(model, OnnxModel)
    graph = model.proto.graph
    last = next(node for node in graph.node if "logits" in node.output)
    last.output[:] = ["unscaled"]
    graph.node.append(helper.make_node("Cast", [name], ["real"], to=TensorProto.FLOAT))
    graph.node.append(helper.make_node("Mul", ["unscaled", "real"], ["logits"]))
    graph.node.append(helper.make_node("Identity", [name], ["given_back"]))
    graph.input.append(helper.make_tensor_value_info(name, TensorProto.INT64, shape))
    graph.output.append(helper.make_tensor_value_info("given_back", TensorProto.INT64, shape))
    model.mark_edited()
    return model


@pytest.mark.parametrize("before", ["", "to-openvino,"], ids=["onnx", "openvino"])
def test_a_constant_takes_the_place_of_the_input(before):
    pipeline = graphpass.parse(f"{before}fix-input{{input=factor,value=3}}")
    model = graphpass.PassManager(pipeline).run(scaled()).model
    assert "factor" not in {port.name for port in model.inputs}
    assert "given_back" not in {port.name for port in model.outputs}
    want = open_session(exported("llama/onnx")).prefill([[1, 5, 9]])
    numpy.testing.assert_allclose(open_session(model).prefill([[1, 5, 9]]), 3 * want, atol=1e-4)


def test_sessions_name_the_pass():
    with pytest.raises(UnsupportedError) as caught:
        open_session(scaled())
    assert "fix-input{input=factor,value=0}" in (caught.value.hint or "")
