"""The pass `drop-ports`."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper
from support.commands import in_process
from support.models import fixtures

from graphpass.analysis.caches.extra_outputs import extra_outputs
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.errors import PreconditionError
from graphpass.passes.convert.drop_ports import DropPorts
from graphpass.testing import run, tiny_model


def with_more_ports(model: OnnxModel) -> tuple[OnnxModel, list[str]]:
    """A copy that also returns token ids and the weights of attention, and has an input that no operator reads."""
    model = model.clone()
    graph = model.proto.graph
    weights = [node.output[0] for node in graph.node if node.op_type == "Softmax"]
    graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in weights)
    graph.node.append(helper.make_node("ArgMax", ["logits"], ["token"], "chosen", axis=-1, keepdims=0))
    graph.output.append(helper.make_tensor_value_info("token", TensorProto.INT64, ["batch", "length"]))
    graph.input.append(helper.make_tensor_value_info("token_type_ids", TensorProto.INT64, ["batch", "length"]))
    model.mark_edited()
    return model, [*weights, "token"]


@pytest.mark.parametrize("dialect", ["onnx", "openvino"])
def test_ports_are_dropped(dialect):
    model, outputs = with_more_ports(tiny_model("llama"))
    given = model if dialect == "onnx" else run(model, "to-openvino")
    assert sorted(extra_outputs(given)) == sorted(outputs)
    after = run(given, [DropPorts(("token_type_ids",), tuple(outputs))])
    plain = tiny_model("llama") if dialect == "onnx" else run(tiny_model("llama"), "to-openvino")
    assert [port.name for port in after.outputs] == [port.name for port in plain.outputs]
    assert [port.name for port in after.inputs] == [port.name for port in plain.inputs]
    assert extra_outputs(after) == ()


@pytest.mark.parametrize(
    ("inputs", "outputs", "reason"),
    [
        (("input_ids",), (), "an operator reads input input_ids"),
        (("other",), (), "no input other"),
        ((), ("other",), "no output other"),
        ((), ("present.0.key",), "that of a cache"),
    ],
)
def test_other_ports_are_refused(inputs, outputs, reason):
    with pytest.raises(PreconditionError, match=f"GP349.*{reason}"):
        run(tiny_model("llama"), [DropPorts(inputs, outputs)])


@pytest.mark.parametrize("target", ["npu", "paged", "ort-genai"])
def test_runtimes_that_generate_get_no_other_ports(target, tmp_path, capfd):
    source = OnnxModel.load(fixtures() / "llama" / "onnx" / "model.onnx")
    model, outputs = with_more_ports(source)
    onnx.save(model.proto, tmp_path / "model.onnx")
    arguments = [tmp_path / "model.onnx", "-o", tmp_path / "out", "--target", target]
    if target == "ort-genai":
        (tmp_path / "config.json").write_bytes((fixtures() / "llama" / "onnx" / "config.json").read_bytes())
    done = in_process(capfd, "convert", *arguments)
    assert (done.code, "verified  same" in done.out) == (0, True), done.err
    assert all(f"output {name}, which drop-ports removes" in done.out for name in outputs[:1])


def test_targets_that_keep_them_name_the_pass(tmp_path, capfd):
    model, outputs = with_more_ports(OnnxModel.load(fixtures() / "llama" / "onnx" / "model.onnx"))
    onnx.save(model.proto, tmp_path / "model.onnx")
    arguments = [tmp_path / "model.onnx", "-o", tmp_path / "out", "--target", "cpu", "--no-verify"]
    done = in_process(capfd, "convert", *arguments)
    assert (done.code, "run drop-ports{outputs=[" in done.err, outputs[0] in done.err) == (4, True, True)


def test_other_targets_keep_them(tmp_path, capfd):
    """ONNX Runtime returns them to its caller."""
    model, outputs = with_more_ports(OnnxModel.load(fixtures() / "llama" / "onnx" / "model.onnx"))
    onnx.save(model.proto, tmp_path / "model.onnx")
    arguments = [tmp_path / "model.onnx", "-o", tmp_path / "out", "--target", "ort", "--no-verify"]
    assert in_process(capfd, "convert", *arguments).code == 0
    written = OnnxModel.load(tmp_path / "out" / "model.onnx")
    assert {*outputs} <= {port.name for port in written.outputs}
