"""What `check` says of a prefill and a decode model."""

from __future__ import annotations

import pytest
from support.loaded import onnx_model, openvino_model

from graphpass import PassManager, parse
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.targets import check_model


def static(length: int, past: int, name: str = "llama") -> OpenVINOModel:
    passes = parse(f"fuse-attention,expose-position-ids,make-static{{length={length},past={past}}}")
    result = PassManager(passes).run(openvino_model(name, "ov-stateless")).model
    assert isinstance(result, OpenVINOModel)
    return result


@pytest.mark.parametrize(
    ("name", "length"), [("llama", 8), ("llama", 1), pytest.param("lfm2", 8, marks=pytest.mark.slow)]
)
def test_npuw_runs_a_pair_on_its_generic_path(name: str, length: int) -> None:
    report = check_model(static(length, 32, name), "npu")
    assert report.holds
    assert {finding.verdict for finding in report.findings} == {"taken"}
    assert report.confirmation is not None
    assert report.confirmation.outcome == "confirmed"
    assert "generic path" in report.confirmation.tried


@pytest.mark.parametrize("target", ["cpu", "npu"])
def test_a_reopened_size(target: str) -> None:
    model = static(1, 32)
    shapes = {port: port.partial_shape for port in model.ov_model.inputs}
    mask = model.ov_model.input("attention_mask")
    model.ov_model.reshape({**shapes, mask: [1, -1]})
    model.mark_edited()
    report = check_model(model, target)
    assert report.confirmation is not None
    assert report.confirmation.outcome == "confirmed", report
    if target == "npu":
        assert [finding.name for finding in report.findings if not finding.holds] == ["attention_mask"]


def test_the_cpu_plugin_and_onnx_runtime_run_static_models() -> None:
    report = check_model(static(1, 32), "cpu")
    assert report.holds
    model = PassManager(parse("make-static{length=8,past=24}")).run(onnx_model("llama")).model
    report = check_model(model, "ort")
    assert report.holds
    assert report.confirmation is not None
    assert report.confirmation.outcome == "confirmed"
