"""The pass `change-precision{to=f16}`: casts at borders alone, PyTorch's tokens, weights rounded once, and refusals."""

from __future__ import annotations

import json

import pytest
from support.compressed_weights import with_dequantize_linear
from support.half_models import demoted
from support.loaded import exported, openvino_model
from support.models import export, hybrids
from support.reference_tokens import generates, generates_reference_tokens

import graphpass
from graphpass.engine.pipeline import parse_target
from graphpass.errors import PreconditionError, UsageError
from graphpass.ir.graph import Graph
from graphpass.model_files import find_model
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
