"""Reports of `check_model`, whatever the target."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import numpy
import pytest
from openvino import opset13 as ops
from support.loaded import onnx_model, openvino_model
from support.scale import SIZES, scaled

from graphpass.engine.findings import Finding, Observation, confirmation_of
from graphpass.errors import UsageError
from graphpass.io import load
from graphpass.ir.values import MASKED
from graphpass.targets import check_model

#: How many places each key lies behind the query.
BEHIND = numpy.arange(256, dtype=numpy.float32)[:, None] - numpy.arange(256, dtype=numpy.float32)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target", ["paged", "npu"])
@pytest.mark.parametrize(
    ("added", "words"),
    [(-0.25 * BEHIND, "its bias"), (numpy.where(BEHIND < 4, 0, MASKED), "its constant window")],
    ids=["bias", "window"],
)
def test_constants_added_to_the_mask_are_lost_or_misplaced(added, words, target):
    model = openvino_model("llama", "ov-stateful").clone()
    one, axes = numpy.int64([1, 1]), numpy.int64([2, 3])
    for node in model.graph.of_op("ScaledDotProductAttention"):
        mask = node.native.input_value(3)
        kept = ops.constant(numpy.float32(added[None, None]), name=f"{node.name}/kept")
        rows, columns = (ops.gather(ops.shape_of(mask, "i64"), numpy.int64([axis]), numpy.int64(0)) for axis in (2, 3))
        start = ops.concat([ops.subtract(columns, rows), numpy.int64([0])], 0)
        cut = ops.slice(kept, start, ops.concat([columns, columns], 0), one, axes)
        node.native.input(3).replace_source_output(ops.add(mask, cut).output(0))
    model.mark_edited()
    report = check_model(model, target)
    assert report.confirmation.outcome == "confirmed", report.confirmation.contradictions
    found = [finding for finding in report.findings if not finding.holds]
    assert {(finding.subject, finding.verdict) for finding in found} == {("attention", "wrong")}
    assert all(words in finding.reason for finding in found)
    ends = "/kept" if "window" in words else "ScaledDotProductAttention"
    assert all(finding.node.endswith(ends) for finding in found)


@pytest.mark.parametrize("target", ["cpu", "gpu", "npu", "paged"])
def test_onnx_has_to_be_converted_first(target):
    report = check_model(onnx_model("llama"), target)
    assert [finding.verdict for finding in report.findings] == ["refused"]
    assert "run graphpass convert first" in report.findings[0].reason
    assert report.confirmation.outcome == "impossible"


def test_onnx_runtime_does_not_run_ir():
    report = check_model(openvino_model("llama"), "ort")
    assert [finding.verdict for finding in report.findings] == ["refused"]


def test_confirm_false_skips_the_trial():
    assert check_model(openvino_model("llama"), "cpu", confirm=False).confirmation is None


def test_options_of_a_target_are_kept():
    report = check_model(openvino_model("llama"), "gpu{cache=reorder, trim=slice}", confirm=False)
    assert (report.target, report.holds) == ("gpu{cache=reorder,trim=slice}", True)


@pytest.mark.parametrize(("target", "error"), [("tpu", "GP215: unknown target 'tpu'"), ("gpu{cache=x}", "GP213")])
def test_an_unknown_target_or_option_is_refused(target, error):
    with pytest.raises(UsageError, match=error):
        check_model(openvino_model("llama"), target)


def test_targets_load_without_their_runtimes():
    program = (
        "import sys, graphpass; [graphpass.get_target(name) for name in graphpass.target_names()];"
        "loaded = {'openvino', 'onnx', 'onnxruntime', 'numpy'} & sys.modules.keys(); assert not loaded, loaded"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


FUSED, PLAIN = Finding("attention", "a", "fused"), Finding("attention", "b", "plain")
REFUSED, WRONG = Finding("model", "m", "refused"), Finding("cache", "c", "wrong")


@pytest.mark.parametrize(
    ("findings", "observed"),
    [
        ((FUSED, PLAIN), Observation("", frozenset())),
        ((FUSED, PLAIN), Observation("", frozenset({"a", "b"}))),
        ((FUSED,), Observation("", refused="no")),
        ((REFUSED,), Observation("")),
        ((WRONG,), Observation("", ran=True)),
        ((FUSED,), Observation("", wrong="NaN", ran=True)),
    ],
)
def test_wrong_predictions_are_contradicted(findings, observed):
    confirmation = confirmation_of(findings, observed)
    assert confirmation.outcome == "contradicted"
    assert len(confirmation.contradictions) == 1


@pytest.mark.parametrize(
    ("findings", "observed"),
    [
        ((FUSED, PLAIN), Observation("", frozenset({"a"}))),
        ((FUSED, REFUSED), Observation("", refused="no")),
        ((FUSED, WRONG), Observation("", wrong="NaN", ran=True)),
        ((WRONG,), Observation("")),
    ],
)
def test_right_predictions_are_confirmed(findings, observed):
    assert confirmation_of(findings, observed).outcome == "confirmed"


def test_models_larger_than_memory_are_not_tried(tmp_path):
    """Weights of some 230 GB, all of them holes."""
    size = dataclasses.replace(SIZES["70B"], inner=20 * 28672)
    report = check_model(load(scaled("llama", size, tmp_path, layers=4)), "ort")
    assert report.confirmation.outcome == "impossible"
    assert "GB are more than half of the" in report.confirmation.tried
