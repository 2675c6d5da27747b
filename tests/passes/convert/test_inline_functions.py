"""The pass `inline-functions`."""

import json

import onnx
import pytest
from onnx import helper
from support.commands import in_process
from support.loaded import onnx_model

import graphpass
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.engine.pipeline import parse
from graphpass.errors import UnsupportedError
from graphpass.verify import compare


def with_functions(domain, inputs=("scores",)):
    """Llama, whose softmax is a function."""
    model = onnx_model("llama")
    softmax = [node for node in model.proto.graph.node if node.op_type == "Softmax"]
    body = helper.make_node("Softmax", ["scores"], ["shares"], axis=-1)
    version = next(one.version for one in model.proto.opset_import if not one.domain)
    imports = [helper.make_opsetid("", version)]
    model.proto.functions.append(helper.make_function(domain, "Shares", list(inputs), ["shares"], [body], imports))
    for node in softmax:
        node.op_type, node.domain = "Shares", domain
        del node.attribute[:]
    model.proto.opset_import.append(helper.make_opsetid(domain, 1))
    model.mark_edited()
    return model


def inlined(model):
    return graphpass.PassManager(parse("inline-functions")).run(model).model


def test_functions_are_replaced_by_their_bodies():
    given = with_functions("mine")
    assert not any(given.graph.of_op("Softmax"))
    model = inlined(given)
    assert not model.proto.functions
    assert len(analyze_caches(model).attention) == sum(1 for _ in model.graph.of_op("Softmax")) == 2
    assert compare(onnx_model("llama"), model, steps=2).passed


def test_functions_beside_kernels_stay():
    assert [one.name for one in inlined(with_functions("com.microsoft")).proto.functions] == ["Shares"]


def test_a_call_with_too_many_inputs_is_refused():
    with pytest.raises(UnsupportedError, match="GP339"):
        inlined(with_functions("mine", inputs=()))


@pytest.mark.parametrize("target", ["cpu", "ort"])
def test_convert_inlines_before_it_chooses_passes(target, tmp_path, capfd):
    model = with_functions("mine")
    onnx.save(model.proto, tmp_path / "model.onnx")
    arguments = [tmp_path / "model.onnx", "-o", tmp_path / "out", "--target", target, "--format", "json"]
    done = in_process(capfd, "convert", *arguments)
    result = json.loads(done.out)
    assert done.code == 0
    assert result["models"][0]["pipeline"].startswith("inline-functions,")
    assert {one["verdict"] for one in result["contract"]["findings"] if one["subject"] == "attention"} == {"fused"}
