"""Models that other tools made narrower: ONNX Runtime's converter to f16, and its dynamic quantization."""

from __future__ import annotations

import functools
import shutil
import tempfile
from pathlib import Path

import onnx
import pytest
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.matmul_bnb4_quantizer import MatMulBnb4Quantizer
from onnxruntime.transformers.float16 import convert_float_to_float16
from support.loaded import exported
from support.merged_decoders import merged_decoder
from support.models import export
from support.static_scales import in_static_int8

import graphpass
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse_target
from graphpass.ir.model import Model
from graphpass.model_files import find_model
from graphpass.runtime.backends.encoder_decoder import EncoderDecoderModels
from graphpass.verify import compare
from graphpass.verify.compare_models import WIDENED
from graphpass.verify.conditioning import nudged_copies
from graphpass.verify.difference import Tolerance
from graphpass.verify.encoder_decoder import compare_encoder_decoders
from graphpass.verify.feeding import feed
from graphpass.verify.layers.proof import compare_within
from graphpass.verify.structure.proof import compare_structures


@functools.cache
def in_f16(name: str, *, wide_ports: bool) -> OnnxModel:
    proto = onnx.load(find_model(export(name, "onnx")))
    return OnnxModel(convert_float_to_float16(proto, keep_io_types=wide_ports))


@functools.cache
def in_int8(name: str, *, per_channel: bool = False) -> OnnxModel:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        # The quantizer writes a model of its own beside the one that it reads.
        source = shutil.copy(find_model(export(name, "onnx")), Path(folder) / "source.onnx")
        fine = {"per_channel": per_channel, "reduce_range": per_channel}
        quantize_dynamic(source, file, weight_type=QuantType.QInt8, **fine)
        return OnnxModel(onnx.load(file))


def converted(model: Model, target: str) -> Model:
    return PassManager(parse_target(target).pipeline(model)).run(model).model


def fused(model: Model) -> set[str]:
    return {block.form for block in analyze_caches(model).attention}


@pytest.mark.parametrize("wide_ports", [True, False])
def test_a_converted_model_is_proven_exactly(wide_ports: bool) -> None:
    """The converter computes positions and angles in f16, which are off from some hundred positions on."""
    model = in_f16("llama", wide_ports=wide_ports)
    result = converted(model, "cpu")
    assert fused(result) == {"ScaledDotProductAttention"}
    assert Tolerance.for_models(model, result) == Tolerance(1e-3, 1e-3)
    found = compare(model, result, steps=4)
    assert found.passed
    assert found.max_abs_difference < 1e-4
    assert WIDENED in found.skipped


def test_casts_around_caches_do_not_keep_attention_apart() -> None:
    model = in_f16("llama", wide_ports=True)
    result = converted(model, "ort")
    assert fused(result) == {"GroupQueryAttention"}
    assert {port.element_type for port in result.inputs if "past" in port.name} == {"f32"}
    assert compare(model, result, steps=4).max_abs_difference < 1e-4
    narrow = converted(model, "ort{device=cuda,context=512}")
    assert {port.element_type for port in narrow.inputs if "past" in port.name} == {"f16"}
    # Weights are read as they are stored, in one product.
    assert sum(node.op == "GroupQueryAttention" and node.input(1) is None for node in narrow.graph.nodes) == 2
    assert compare(model, narrow, steps=4, padding="right").passed


def test_caches_in_f16_stay_f16() -> None:
    model = in_f16("llama", wide_ports=False)
    result = converted(model, "ort")
    assert {port.element_type for port in result.inputs if "past" in port.name} == {"f16"}
    found = compare(model, result, steps=4)
    assert found.passed
    assert WIDENED not in found.skipped


def test_angles_in_f16_differ_from_angles_in_f32() -> None:
    """Rounding counts in candidates: the converted model is not what was exported."""
    found = compare(exported("llama/onnx"), in_f16("llama", wide_ports=False), steps=2)
    assert found.divergence is not None
    assert found.divergence.place == "norm /model/layers.0/input_layernorm/Add"


@pytest.mark.parametrize("target", ["ort", "cpu"])
def test_padding_is_rounded_with_the_rest(target: str) -> None:
    """One scale for all rows: what stands at padding, which nothing specifies, moves them all."""
    quantized = in_int8("llama")
    result = converted(quantized, target)
    found = compare(quantized, result, steps=4, examine=True)
    assert found.passed
    is_noted = any("single logits: activations are rounded to integers" in words for words in found.skipped)
    assert found.max_abs_difference < 1e-3 or is_noted
    reason = "padding: it enters the scales by which activations of all rows are rounded"
    assert {f"left {reason}", f"right {reason}"} <= set(found.skipped)
    assert any("rows in a batch of 2 and alone" in warning for warning in found.warnings)


def test_static_scales_are_proven_and_not_saturated(tmp_path: Path) -> None:
    """With AVX2 and without VNNI, integer products of both runtimes change logits by a tenth."""
    model = graphpass.load(in_static_int8(tmp_path, keeps=("self_attn/MatMul", "rotary", "lm_head")))
    result = converted(model, "cpu")
    assert fused(result) == {"ScaledDotProductAttention"}
    found = compare_within(model, result, steps=2, examine=True)
    assert found.passed
    assert found.is_proven
    assert not found.skipped
    # The plugin's integer products may be exact.
    assert all("computes products of rounded activations in integers" in warning for warning in found.warnings)


def test_products_of_four_bits_are_products() -> None:
    quantizer = MatMulBnb4Quantizer(onnx.load(find_model(export("llama", "onnx"))), 1, 64)
    quantizer.process()
    model = OnnxModel(quantizer.model.model)
    result = converted(model, "ort")
    assert fused(result) == {"GroupQueryAttention"}
    assert sum(node.op == "MatMulBnb4" for node in result.graph.nodes) == 15
    assert compare(model, result, steps=2).passed


def test_sizes_are_known_after_integers() -> None:
    """The mask of `opt` takes its length from keys that MatMulInteger makes."""
    model = in_int8("opt")
    result = converted(model, "ort")
    assert fused(result) == {"GroupQueryAttention"}
    assert compare(model, result, steps=2).passed


def test_a_number_may_be_rounded_the_other_way() -> None:
    """The reference itself moves as far if its embeddings are changed by 2^-20; a fault moves logits further."""
    model = in_int8("phi3")
    # Off by what sums in another order are off, one of them rounds a number the other way on every processor.
    candidates = [converted(copy, "cpu") for copy in nudged_copies(model, -20)]
    runs = [compare(model, candidate, steps=4) for candidate in candidates]
    assert all(found.passed for found in runs)
    moved = [found for found in runs if found.max_abs_difference > 1e-2]
    assert moved
    words = "single logits: activations are rounded to integers"
    assert all(any(text.startswith(words) for text in found.skipped) for found in moved)
    faulty = converted(swapped(model), "cpu")
    assert not compare(model, faulty, steps=2).passed


def swapped(model: OnnxModel) -> OnnxModel:
    """The same with two weights of layers exchanged."""
    copy = model.clone()
    first, second = [
        tensor
        for tensor in copy.proto.graph.initializer
        if tensor.data_type == onnx.TensorProto.INT8 and list(tensor.dims) == [64, 64]
    ][:2]
    first.raw_data, second.raw_data = second.raw_data, first.raw_data
    copy.mark_edited()
    return copy


@pytest.mark.slow
def test_an_encoder_of_features_in_f16() -> None:
    folder = export("whisper", "onnx")

    def parts(*, half: bool) -> EncoderDecoderModels:
        names = ("encoder_model", "decoder_with_past_model", "decoder_model")
        protos = (onnx.load(folder / f"{name}.onnx") for name in names)
        return EncoderDecoderModels(
            *(OnnxModel(convert_float_to_float16(proto, keep_io_types=False) if half else proto) for proto in protos)
        )

    found = compare_encoder_decoders(parts(half=True), parts(half=False), steps=4)
    assert found.passed
    assert 0 < found.max_abs_difference < 0.2


@pytest.mark.parametrize("target", ["ort", "cpu"])
def test_products_of_integers_inside_branches_are_no_difference(target):
    """Inside an If they saturate on processors without VNNI, so the branch of later steps is compared."""
    merged = merged_decoder(in_int8("gpt2"))
    found = graphpass.verify(merged, converted(merged, target), steps=2)
    assert found.passed, found.summary()
    note = "the branch of the first step, which rounds differently on the CPU: the reference ran after select-branch"
    assert note in found.skipped


def test_rounding_of_activations_is_no_difference_of_operators():
    """On random numbers, sums in another order move activations by a step of 8 bits."""
    reference = in_int8("opt", per_channel=True)
    candidate = converted(reference, "cpu")
    proof = compare_structures(reference, candidate, feed)
    assert proof.fed.difference is None
    assert proof.fed.reason is None
    rewriter = candidate.rewriter()
    result = candidate.graph.writes["logits"]
    write = rewriter.under("fault")
    rewriter.redirect(result, 0, write.op("Multiply", result.source(), write.number(1.02, "f32")))
    rewriter.finish()
    assert compare_structures(reference, candidate, feed).fed.difference is not None
