"""An input that ONNX Runtime refuses is named in place of the failure that follows from it."""

import onnx
import pytest

import graphpass
from graphpass.errors import UnsupportedError
from graphpass.testing import tiny_model


@pytest.fixture(scope="module")
def mistyped(tmp_path_factory):
    """A tool declares f16 for an output of f32, as onnxconverter-common does for Casts."""
    proto = tiny_model("llama", "onnx").proto
    node = next(node for node in proto.graph.node if node.op_type == "Softmax")
    del proto.graph.value_info[:]
    proto.graph.value_info.append(onnx.helper.make_tensor_value_info(node.output[0], onnx.TensorProto.FLOAT16, None))
    file = tmp_path_factory.mktemp("mistyped") / "model.onnx"
    onnx.save(proto, file)
    return file


def test_an_input_that_does_not_compile_is_named(mistyped, tmp_path):
    with pytest.raises(UnsupportedError, match=r"the input .*model.onnx is at fault: ONNX Runtime cannot") as failure:
        graphpass.convert(mistyped, tmp_path / "out", "ort")
    assert failure.value.id == "GP351"
