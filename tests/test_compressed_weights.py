"""Weights of 4 and 8 bits reach every target as they are stored, and the same tokens come out."""

from __future__ import annotations

from pathlib import Path

import numpy
import openvino
import pytest
from openvino import opset13 as ops
from support.commands import in_process
from support.compressed_weights import (
    GROUP,
    rounded,
    stored_bytes,
    whole_numbers,
    with_dequantize_linear,
    with_matmul_nbits,
)
from support.decode import EXACT, fused_attention
from support.models import export

import graphpass
from graphpass.targets import check_model
from graphpass.verify import compare

#: The plugin rounds activations to 8 bits by default where weights are compressed.
UNROUNDED = EXACT | {"DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}

QUICK = ["nbits-4-zeros", "linear-uint4-blocks", "ir-u8", "optimum"]
SLOW = ["nbits-4", "nbits-8", "nbits-8-zeros", "nbits-f16", "linear-int4", "linear-int4-blocks", "linear-int8"]
SLOW += ["linear-uint8", "linear-f16", "ir-i8", "ir-u4", "ir-i4"]


def made(case: str, folder: Path) -> Path:
    """A model with compressed weights."""
    kind, *how = case.split("-")
    llama = export("llama", "onnx-fp16" if "f16" in how else "onnx") / "model.onnx"
    if kind == "nbits":
        return with_matmul_nbits(llama, folder, 8 if "8" in how else 4, zero_points="zeros" in how)
    if kind == "linear":
        stored = "uint4" if "f16" in how else how[0]
        return with_dequantize_linear(llama, folder, stored, blocks="blocks" in how)
    if kind == "ir":
        return with_compressed_constants(export("llama", "ov-stateless") / "openvino_model.xml", folder, how[0])
    return export("llama", "ov-stateful-int8") / "openvino_model.xml"


def stored(model: graphpass.Model) -> object:
    return stored_bytes(model.proto if model.dialect == "onnx" else model.ov_model)


def with_compressed_constants(source: Path, folder: Path, stored: str) -> Path:
    """A copy of an IR whose products take their weights from whole numbers, as NNCF writes them.

    Args:
        source: The IR.
        folder: Where to write.
        stored: ``"i8"``, ``"u8"``, ``"i4"`` or ``"u4"``.
    """
    bits, zero = int(stored[1]), 0 if stored[0] == "i" else 2 ** (int(stored[1]) - 1)
    model = openvino.Core().read_model(source)
    for op in model.get_ordered_ops():
        if op.get_type_name() != "MatMul" or op.input_value(1).get_node().get_type_name() != "Constant":
            continue
        constant = op.input_value(1).get_node()
        weight = constant.data
        numbers, scale, zeros = rounded(weight.reshape(len(weight), -1, GROUP), bits, zero)
        wide = ops.convert(whole_numbers(numbers, stored), openvino.Type.f16)
        if zero:
            wide = ops.subtract(wide, ops.convert(whole_numbers(zeros, stored), openvino.Type.f16))
        wide = ops.multiply(wide, ops.constant(scale.astype(numpy.float16)))
        wide = ops.reshape(wide, numpy.array(weight.shape), special_zero=False)
        wide = ops.convert(wide, openvino.Type.f32)
        op.input(1).replace_source_output(wide.output(0))
    folder.mkdir(parents=True)
    openvino.save_model(model, folder / "openvino_model.xml", compress_to_fp16=False)
    return folder / "openvino_model.xml"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", [*QUICK, *(pytest.param(case, marks=pytest.mark.slow) for case in SLOW)])
def test_the_cpu_gets_weights_as_stored(tmp_path, case):
    source = graphpass.load(made(case, tmp_path / "in"))
    before = stored(source)
    assert sum(before.values()) >= 11
    result = graphpass.PassManager(graphpass.get_target("cpu").pipeline(source)).run(source).model
    graphpass.save(result, tmp_path / "out" / "openvino_model.xml")
    written = graphpass.load(tmp_path / "out")
    assert stored(written) == before
    compiled = openvino.Core().compile_model(written.ov_model, "CPU", UNROUNDED)
    assert fused_attention(compiled) == 2
    assert compare(source, written, steps=6).passed


@pytest.mark.skipif("vnni" not in Path("/proc/cpuinfo").read_text(), reason="the plugin rounds activations with VNNI")
def test_rounding_disabled_in_the_proof_is_measured(tmp_path):
    source = graphpass.load(made("ir-u4", tmp_path / "in"))
    result = graphpass.PassManager(graphpass.get_target("cpu").pipeline(source)).run(source).model
    found = compare(source, result, steps=1, examine=True)
    assert found.passed
    (warning,) = (text for text in found.warnings if "DYNAMIC_QUANTIZATION_GROUP_SIZE=32 by default" in text)
    moved = float(warning.partition("move by ")[2].partition(",")[0])
    assert moved > 100 * found.max_abs_difference
    as_set = compare(source, result, steps=1, examine=True, properties={"DYNAMIC_QUANTIZATION_GROUP_SIZE": 0})
    assert not any("DYNAMIC_QUANTIZATION" in text for text in as_set.warnings)


@pytest.mark.parametrize(
    ("case", "target"),
    [
        pytest.param("nbits-4-zeros", "gpu", marks=pytest.mark.slow),
        ("ir-u4", "npu"),
        pytest.param("linear-uint4", "paged", marks=pytest.mark.slow),
    ],
)
def test_other_targets_get_weights_as_stored(tmp_path, case, target):
    source = graphpass.load(made(case, tmp_path / "in"))
    before = stored(source)
    result = graphpass.PassManager(graphpass.get_target(target).pipeline(source)).run(source).model
    graphpass.save(result, tmp_path / "out" / "openvino_model.xml")
    assert stored(graphpass.load(tmp_path / "out")) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("nbits-4", None),
        ("nbits-f16", None),
        ("linear-int4", "its scales are [1, 64]"),
        ("linear-int4-blocks", None),
        ("linear-int8", "its scales are [1, 64]"),
    ],
)
def test_refusals_hold_on_npuw(tmp_path, case, words):
    source = graphpass.load(made(case, tmp_path / "in"))
    report = check_model(graphpass.PassManager(graphpass.get_target("npu").pipeline(source)).run(source).model, "npu")
    assert report.confirmation.outcome == "confirmed", report.confirmation.contradictions
    reasons = [finding.reason for finding in report.findings if not finding.holds]
    assert len(reasons) == (words is not None)
    assert all(words in reason for reason in reasons)


@pytest.mark.parametrize("where", ["in the model", pytest.param("by default", marks=pytest.mark.slow)])
def test_verification_does_not_mistake_rounded_activations_for_a_wrong_result(capfd, tmp_path, where):
    """Both let ONNX Runtime round activations to 8 bits, which moves this model's logits by 0.1."""
    llama = export("llama", "onnx") / "model.onnx"
    if where == "in the model":
        with_matmul_nbits(llama, tmp_path / "in", 4, zero_points=False, accuracy_level=4)
    else:
        with_dequantize_linear(llama, tmp_path / "in", "int4", blocks=True)
    done = in_process(capfd, "convert", tmp_path / "in", "-o", tmp_path / "out", "--target", "cpu")
    assert (done.code, done.err) == (0, "")
    assert "verified  same" in done.out
