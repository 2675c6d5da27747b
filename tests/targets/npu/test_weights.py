"""Weights of 4 and 8 bits in forms that NPUW widens and in forms on which it fails."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy
import openvino
import pytest
from openvino import opset13 as ops
from support.compressed_weights import rounded, whole_numbers
from support.models import export

from graphpass import Model, load
from graphpass.targets import check_model


@dataclass(frozen=True)
class Form:
    """Describe the storage of a weight.

    Attributes:
        stored: Element type of its numbers.
        group: How many share a scale; 0 for a row of the weight.
        zeros: Whether each group has a zero point of the stored type, all share one, or all share one that is wide.
        wide: What it is computed in.
        turned: Whether rows and columns are swapped.
        reader: What reads it.
        converts: Whether scales are stored in f16, for numbers in f32.
    """

    stored: Literal["i4", "u4", "i8"]
    group: int
    zeros: Literal["each", "one", "wide"] | None = None
    wide: Literal["f16", "f32"] = "f16"
    turned: bool = False
    reader: Literal["MatMul", "Gather"] = "MatMul"
    converts: bool = False


STEPS = "not a multiple of 64"

#: The forms, and words of the reason for which NPUW refuses them.
FORMS = {
    Form("i4", 32): STEPS,
    Form("i4", 64): None,
    Form("i4", 16, wide="f32"): STEPS,
    Form("i4", 16, wide="f32", converts=True): None,
    Form("i4", 0): None,
    Form("i4", 32, "each"): None,
    Form("i4", 32, turned=True): "not one for each row or group",
    Form("i4", 32, turned=True, wide="f32"): None,
    Form("i4", 32, reader="Gather"): None,
    Form("i4", 32, reader="Gather", wide="f32"): STEPS,
    Form("i8", 32): None,
    Form("u4", 32): None,
    Form("u4", 32, "each"): STEPS,
    Form("u4", 64, "each"): None,
    Form("u4", 32, "each", wide="f32"): None,
    Form("u4", 64, "each", turned=True): "zero points are",
    Form("u4", 32, "one"): STEPS,
    Form("u4", 64, "one"): None,
    Form("u4", 32, "one", wide="f32"): None,
    Form("u4", 32, "wide", wide="f32"): STEPS,
    Form("u4", 32, "each", reader="Gather"): STEPS,
}


def compressed(form: Form, folder: Path) -> Model:
    """Llama with its weights in that form."""
    model = openvino.Core().read_model(export("llama", "ov-stateful") / "openvino_model.xml")
    changed = 0
    for op in model.get_ordered_ops():
        port = {"MatMul": 1, "Gather": 0}[form.reader] if op.get_type_name() == form.reader else None
        weight = None if port is None else constant(op.input_value(port))
        if port is None or weight is None:
            continue
        if form.turned:
            product = ops.matmul(op.input_value(0), widened(weight, form), False, False)
            for reader in list(op.output(0).get_target_inputs()):
                reader.replace_source_output(product.output(0))
        else:
            op.input(port).replace_source_output(widened(weight, form).output(0))
        changed += 1
    assert changed
    model.validate_nodes_and_infer_types()
    openvino.save_model(model, folder / "openvino_model.xml", compress_to_fp16=False)
    return load(folder)


def constant(source: openvino.Output) -> numpy.ndarray | None:
    """A weight that is a matrix."""
    node = source.get_node()
    while node.get_type_name() == "Convert":
        node = node.input_value(0).get_node()
    is_weight = node.get_type_name() == "Constant" and len(node.shape) == 2 and min(node.shape) > 1
    return node.data.astype(numpy.float32) if is_weight else None


def widened(weight: numpy.ndarray, form: Form) -> openvino.Node:
    """What computes the weight, in f32."""
    parts = weight.reshape(len(weight), -1, form.group) if form.group else weight
    numbers, scale, zeros = rounded(
        parts, int(form.stored[1]), 8 if form.zeros == "each" and form.stored == "u4" else 0
    )
    if form.zeros in {"one", "wide"}:
        numbers, zeros = numbers + 8, numpy.full([1] * parts.ndim, 8)
    if form.turned:
        numbers, scale, zeros = (numpy.ascontiguousarray(part.transpose(1, 2, 0)) for part in (numbers, scale, zeros))
    kind = {"f16": numpy.float16, "f32": numpy.float32}[form.wide]
    wide = ops.convert(whole_numbers(numbers, form.stored), form.wide)
    if form.zeros == "wide":
        wide = ops.subtract(wide, ops.constant(zeros.astype(kind)))
    elif form.zeros:
        wide = ops.subtract(wide, ops.convert(whole_numbers(zeros, form.stored), form.wide))
    scales = ops.constant(scale.astype(numpy.float16 if form.converts else kind))
    wide = ops.multiply(wide, ops.convert(scales, form.wide) if form.converts else scales)
    if form.group:
        shape = weight.T.shape if form.turned else weight.shape
        wide = ops.reshape(wide, numpy.array(shape), special_zero=False)
    return wide if form.wide == "f32" else ops.convert(wide, "f32")


def named(form: Form) -> str:
    words = [form.stored, str(form.group), form.zeros or "no-zeros", form.wide, form.reader]
    words += ["turned"] * form.turned + ["converts"] * form.converts
    return "-".join(words)


@pytest.mark.parametrize("form", FORMS, ids=named)
def test_refusals_are_predicted(form, tmp_path):
    report = check_model(compressed(form, tmp_path), "npu", confirm=False)
    found = [finding for finding in report.findings if not finding.holds]
    if (words := FORMS[form]) is None:
        assert found == []
    else:
        (finding,) = found
        assert (finding.verdict, finding.subject, words in finding.reason) == ("refused", "model", True)
        assert finding.node
        assert finding.source.endswith("util_xarch.cpp")


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS, ids=named)
def test_predictions_hold_on_npuw(form, tmp_path):
    confirmation = check_model(compressed(form, tmp_path), "npu").confirmation
    assert confirmation.outcome == "confirmed", confirmation.contradictions
