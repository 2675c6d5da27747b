"""The pass `change-precision{to=bf16}`: bf16 where CUDA has kernels, proven in f32, refused where it cannot run."""

from __future__ import annotations

import onnxruntime
import pytest
from onnx import TensorProto
from support.loaded import converted, exported, run_once
from support.reference_tokens import generates_reference_tokens

import graphpass
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.findings import Observation
from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse, parse_target
from graphpass.errors import UsageError
from graphpass.verify import compare, compare_within

TARGET = "ort{device=cuda,precision=bf16}"
CUDA = parse_target(TARGET)
MODELS = (
    *("bloom", "falcon", "gemma2", "gemma3_text", "gpt2", "gpt_neo", "gpt_oss", "gptj", "llama_12l", "mistral_sw8"),
    *("opt", "phi3", "qwen3"),
)
#: Rounding moves the likeliest token of others.
LIKELIEST = frozenset(MODELS) - {"llama_12l"}

#: Kinds that CUDA has no kernel for in bf16, though they may be f16 (docs/OperatorKernels.md).
WITHOUT_KERNEL = {"Clip", "DequantizeLinear", "Einsum", "LeakyRelu", "Pad", "Reciprocal", "TopK"}


def bf16(model: OnnxModel) -> OnnxModel:
    result = run_once(model, "change-precision{to=bf16}").model
    assert isinstance(result, OnnxModel)
    return result


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "gpt_oss" else pytest.mark.slow) for name in MODELS]
)
def test_decoders_compute_the_same_but_for_rounding(name: str) -> None:
    model, result = exported(f"{name}/onnx"), converted(exported(f"{name}/onnx"), TARGET).model
    assert {port.element_type for port in result.inputs if "past" in port.name} == {"bf16"}
    assert {port.element_type for port in result.outputs if "present" in port.name} == {"bf16"}
    assert next(port for port in result.outputs if port.name == "logits").element_type == "f32"
    found = compare(model, result, steps=4, padding="right")
    assert found.passed
    assert found.max_abs_difference < 0.6
    assert generates_reference_tokens(result, name) or name not in LIKELIEST
    again = PassManager(parse("change-precision{to=bf16}")).run(result).records[0]
    assert again.outcome == "unchanged"


def test_weights_from_bf16_are_unchanged() -> None:
    model = exported("llama/onnx")
    once = bf16(model)
    promoted = PassManager(parse("change-precision")).run(once).model
    again = bf16(promoted)
    stored = [
        {bytes(tensor.raw_data) for tensor in one.proto.graph.initializer if tensor.data_type == TensorProto.BFLOAT16}
        for one in (once, again)
    ]
    assert stored[0] == stored[1]
    assert compare(once, promoted, steps=2).max_abs_difference == 0


def test_a_model_in_bf16_becomes_any_other() -> None:
    model = bf16(exported("llama/onnx"))
    for target, own in {"ort": "f32", "cpu": "f32", "ort{device=cuda}": "bf16"}.items():
        passes = parse_target(target).pipeline(model)
        result = PassManager(passes).run(model).model
        types = {value.element_type for node in result.graph.of_op("MatMul") for value in node.outputs}
        assert types == {own}
        found = compare(model, result, steps=4, padding=parse_target(target).reads_padding)
        assert found.passed
        # Tables of angles are rounded in bf16 alone.
        assert found.max_abs_difference < (1e-4 if own == "f32" else 0.2)


def test_layers_are_compared_one_by_one() -> None:
    pair = exported("llama/onnx"), converted(exported("llama/onnx"), TARGET).model
    found = compare_within(*pair, all_layers=True, steps=2, padding="right")
    assert found.passed
    assert [part.name for part in found.parts if part.name.startswith("layer")] == ["layer 0", "layer 1"]
    assert max(part.difference or 0.0 for part in found.parts) < 0.1


def test_a_fault_shows_in_spite_of_rounding() -> None:
    reference, model = exported("llama/onnx"), converted(exported("llama/onnx"), TARGET).model.clone()
    weights = [tensor for tensor in model.proto.graph.initializer if list(tensor.dims) == [64, 128]]
    first, second = weights[:2]
    first.raw_data, second.raw_data = second.raw_data, first.raw_data
    model.mark_edited()
    assert not compare(reference, model, steps=2, padding="right").passed


def test_operators_without_a_kernel_stay_in_f32() -> None:
    for name in ("gpt_oss", "qwen3_moe"):
        graph = bf16(exported(f"{name}/onnx")).graph
        narrow = {node.op for node in graph.nodes if any(value.element_type == "bf16" for value in node.outputs)}
        assert "MatMul" in narrow
        assert not narrow & WITHOUT_KERNEL


def test_the_cpu_has_no_products_in_bf16(tmp_path) -> None:
    """If this fails, sessions may run such models as they are."""
    graphpass.save(bf16(exported("llama/onnx")), tmp_path / "model.onnx")
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented, match="MatMul"):
        onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])


def test_other_devices_refuse_bf16_in_advance() -> None:
    for target in ("ort{precision=bf16}", "ort-genai{device=webgpu,precision=bf16}", "ort{device=dml,precision=bf16}"):
        with pytest.raises(UsageError, match=r"GP213.*precision=bf16 requires device=cuda"):
            parse_target(target)
    model, target = bf16(exported("llama/onnx")), parse_target("ort")
    inventory = graphpass.analyze_caches(model)
    refused = [one.reason or "" for one in target.predict(model, inventory) if one.verdict == "refused"]
    assert len(refused) == 1
    assert refused[0].endswith("is in bf16, for which CPUExecutionProvider has no kernels: run change-precision")
    seen = target.observe(model)
    assert isinstance(seen, Observation)
    assert "NOT_IMPLEMENTED" in str(seen.refused)
    assert not [one for one in CUDA.predict(model, inventory) if one.verdict == "refused"]
