"""The pass `change-precision{to=f16}`: casts at borders alone, PyTorch's tokens, weights rounded once, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.compressed_weights import with_dequantize_linear
from support.loaded import exported, openvino_model
from support.models import export, hybrids
from support.reference_tokens import generates, generates_reference_tokens

import graphpass
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.pipeline import parse_target
from graphpass.errors import PreconditionError, UnsupportedError, UsageError
from graphpass.io import find_model
from graphpass.ir.graph import Graph
from graphpass.runtime import open_session
from graphpass.verify import compare

MODELS = (
    *("bloom", "deepseek_v3", "falcon", "falcon_alibi", "gemma2", "gemma3_text", "gpt2", "gpt2_upcast", "gpt_neo"),
    *("gpt_oss", "gptj", "llama", "llama_12l", "mistral_sw8", "opt", "phi3", "qwen3", "qwen3_moe"),
)

#: All fused; some as exported, and with the padding of onnxruntime-genai.
CASES = [
    pytest.param(name, target, marks=() if (name, target) == ("gpt_oss", "ort{precision=f16}") else pytest.mark.slow)
    for target, names in {
        "ort{precision=f16}": MODELS,
        "ort{precision=f16,padding=right}": ("falcon_alibi", "gemma3_text", "gptj"),
        "": ("gpt2_upcast", "gpt_oss", "llama", "qwen3"),
    }.items()
    for name in names
]

#: A tie between experts falls to another one if weights alone are rounded, too.
TIED = {"deepseek_v3", "qwen3_moe"}


def demoted(model: OnnxModel, target: str = "") -> tuple[OnnxModel, graphpass.Done]:
    passes = parse_target(target).pipeline(model) if target else graphpass.parse("change-precision{to=f16}")
    result = graphpass.PassManager(passes).run(model)
    made, done = result.model, result.records[-1].result
    assert isinstance(made, OnnxModel)
    assert isinstance(done, graphpass.Done)
    return made, done


def borders(graph: Graph) -> list[tuple[str, str]]:
    """Casts between f32 and f16 that follow one another."""
    casts = [
        node for node in graph.of_op("Convert") if {node.source().element_type, node.outputs[0].element_type} <= HALVES
    ]
    return [
        (cast.name, use.node.name)
        for cast in casts
        for use in graph.uses(cast.outputs[0])
        if use.node.op == "Convert" and use.node.outputs[0].element_type in HALVES
    ]


ANGLES = ["/model/rotary_emb/MatMul"]
HALVES = {"f16", "f32"}


def of_one_weight(weight: numpy.ndarray, op: str = "MatMul") -> OnnxModel:
    """Tokens to hidden states by a table, and one operator with a weight."""
    info = helper.make_tensor_value_info
    nodes = [helper.make_node("Gather", ["table", "ids"], ["x"]), helper.make_node(op, ["x", "weight"], ["y"], "last")]
    table = numpy.ones((3, 4), numpy.float32)
    held = [numpy_helper.from_array(table, "table"), numpy_helper.from_array(weight.astype(numpy.float32), "weight")]
    ports = [info("ids", TensorProto.INT64, [1, "n"])], [info("y", TensorProto.FLOAT, None)]
    return OnnxModel(helper.make_model(helper.make_graph(nodes, "one", *ports, held), ir_version=10))


@pytest.mark.parametrize(("name", "target"), CASES)
def test_decoders_generate_the_tokens_of_pytorch(name, target):
    model = exported(f"{name}/onnx")
    made, done = demoted(model, target)
    assert generates_reference_tokens(made, name)
    graph = made.graph
    assert not borders(graph)
    assert {port.element_type for port in made.inputs if "past" in port.name} == {"f16"}
    assert {port.element_type for port in made.outputs if "present" in port.name} == {"f16"}
    assert next(port for port in made.outputs if port.name == "logits").element_type == "f32"
    assert {node.outputs[0].element_type for node in graph.of_op("Softmax", "Cos", "TopK")} <= {"f32"}
    assert {node.outputs[0].element_type for node in graph.of_op("MatMul") if "proj" in node.name} <= {"f16"}
    assert done.statistics["caches demoted"] == sum("past" in port.name for port in model.inputs)
    again = graphpass.PassManager(graphpass.parse("change-precision{to=f16}")).run(made).records[0]
    assert again.outcome == "unchanged"
    if name not in TIED:
        padding = parse_target(target).reads_padding if target else "left"
        assert compare(model, made, steps=2, padding=padding).passed


@pytest.mark.slow
def test_a_hybrid_keeps_its_states_in_f32():
    model = graphpass.load(hybrids() / "qwen3_next_dense" / "onnx-raw")
    wanted = json.loads((hybrids() / "qwen3_next_dense" / "reference.json").read_text())
    for target in ("", "ort{precision=f16}"):
        made, _ = demoted(model, target)
        kinds = {port.name.rpartition(".")[2]: port.element_type for port in made.inputs if "past" in port.name}
        assert kinds == {"conv_state": "f16", "recurrent_state": "f32", "key": "f16", "value": "f16"}
        assert generates(made, wanted)


def test_casts_are_at_borders_only():
    made, done = demoted(exported("llama/onnx"), "ort{precision=f16}")
    # The bias that hides padding, and the logits: tables of angles are rounded as weights are.
    assert done.statistics["casts added"] == 2
    assert done.notes == ("4 caches are f16; other inputs and outputs keep their types",)
    wide = {node.op for node in made.graph.nodes if any(value.element_type == "f32" for value in node.outputs)}
    assert not wide & {"Gather", "GroupQueryAttention", "MatMul", "RotaryEmbedding", "SimplifiedLayerNormalization"}


def test_fully_masked_rows_stay_finite():
    made, _ = demoted(exported("llama/onnx"))
    session = open_session(made)
    mask = numpy.array([[0, 0, 0, 1, 1, 1], [1, 1, 1, 1, 1, 1]])
    session.forward(numpy.full((2, 6), 7), mask)
    assert numpy.isfinite(session.logits).all()


def test_a_bias_is_cut_to_the_range_of_f16():
    info, lowest = helper.make_tensor_value_info, float(numpy.finfo(numpy.float32).min)
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["x"]),
        helper.make_node("Where", ["seen", "zero", "lowest"], ["bias"]),
        helper.make_node("Gemm", ["x", "weight", "bias"], ["y"]),
    ]
    held = [numpy_helper.from_array(numpy.ones((3, 4), numpy.float32), name) for name in ("table",)]
    held += [numpy_helper.from_array(numpy.ones((4, 4), numpy.float32), "weight")]
    held += [numpy_helper.from_array(numpy.float32(number), name) for name, number in (("zero", 0), ("lowest", lowest))]
    ports = [info("ids", TensorProto.INT64, [2]), info("seen", TensorProto.BOOL, [2, 4])]
    graph = helper.make_graph(nodes, "biased", ports, [info("y", TensorProto.FLOAT, [2, 4])], held)
    model = OnnxModel(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10))
    made, done = demoted(model)
    assert len(list(made.graph.of_op("Clip"))) == 1
    assert (done.statistics["weights rounded"], done.statistics["casts added"]) == (2, 2)
    seen = numpy.array([[True, False, True, True], [False, False, False, False]])
    opened = onnxruntime.InferenceSession(made.proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (given,) = opened.run(None, {"ids": numpy.array([0, 1]), "seen": seen})
    assert numpy.allclose(given, numpy.where(seen, 4.0, -65504.0), rtol=1e-3)


def test_weights_beyond_f16_are_refused_with_their_names():
    weight = numpy.ones((4, 4))
    demoted(of_one_weight(weight * 65504))
    with pytest.raises(UnsupportedError, match=r"GP398: .*: weight weight of MatMul last exceeds the range of f16"):
        demoted(of_one_weight(weight * 65536))
    with pytest.raises(UnsupportedError, match="GP398"):
        demoted(of_one_weight(numpy.array(1e6), "Mul"))
    made, _ = demoted(of_one_weight(numpy.array(1e6), "Min"))
    assert any(
        numpy_helper.to_array(tensor).item() == 65504 for tensor in made.proto.graph.initializer if not tensor.dims
    )


def test_external_weights_are_written_once_to_a_new_file(tmp_path):
    model = exported("llama/onnx")
    source, proto = tmp_path / "in", onnx.ModelProto()
    source.mkdir()
    proto.CopyFrom(model.proto)
    first = next(tensor for tensor in proto.graph.initializer if list(tensor.dims) == [64, 64])
    for tensor in proto.graph.initializer:
        if list(tensor.dims) == [64, 64]:
            tensor.raw_data = first.raw_data
    onnx.save(proto, source / "model.onnx", save_as_external_data=True, location="weights", size_threshold=100)
    given = graphpass.load(source / "model.onnx")
    made, _ = demoted(given)
    (held,) = made.scratch
    place = held.find(held.name)
    assert place is not None
    graphpass.save(made, tmp_path / "out" / "model.onnx")
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [held.name, "model.onnx"]
    # Alignment adds less than one page a weight.
    assert held.size < (source / "weights").stat().st_size * 0.5 + 4096 * 20
    assert compare(given, graphpass.load(tmp_path / "out"), steps=2).passed
    squares = [tensor for tensor in made.proto.graph.initializer if list(tensor.dims) == [64, 64]]
    assert len({tensor.external_data[1].value for tensor in squares}) == 1
    del made, held
    assert not Path(place).exists()


@pytest.mark.slow
@pytest.mark.parametrize("stored", ["int4", "uint4", "int8", "uint8"])
def test_quantized_weights_keep_their_bytes(stored, tmp_path):
    file = with_dequantize_linear(
        find_model(export("llama", "onnx")), tmp_path / "in", stored, blocks=True, outputs_first=True
    )
    model = graphpass.load(file)
    made, _ = demoted(model, "ort{precision=f16}")
    read = {value.element_type for node in made.graph.of_op("GatherBlockQuantized") for value in node.inputs if value}
    assert "f16" in read
    assert not read & {"f32"}
    products = {node.outputs[0].element_type for node in made.graph.of_op("MatMulNBits", "MatMul")}
    assert products == {"f16", "f32"}  # angles
    assert [node.name for node in made.graph.of_op("MatMul") if node.outputs[0].element_type == "f32"] == ANGLES
    assert not borders(made.graph)
    assert compare(model, made, steps=4).passed


def test_ir_is_not_demoted():
    model = openvino_model("llama")
    with pytest.raises(PreconditionError, match=r"GP301: .*to=f16 requires ONNX, got OpenVINO IR"):
        graphpass.PassManager(graphpass.parse("change-precision{to=f16}")).run(model)


def test_cross_caches_change_with_the_rest_alone():
    with pytest.raises(UsageError, match="cross requires to=f16 or to=bf16"):
        graphpass.parse("change-precision{cross=true}")
