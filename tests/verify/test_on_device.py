"""Comparisons of which one side runs on a GPU or NPU, or on what stands in for it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from support.commands import in_process
from support.gpu_on_cpu import environment
from support.loaded import exported
from support.models import export

from graphpass.errors import UnsupportedError, UsageError
from graphpass.runtime.devices.stand_in import ENVIRONMENT
from graphpass.verify.on_device import compare_on_device

#: NPUW on the CPU.
NPUW = ("--device", "NPU", "--property", "NPUW_DEVICES=CPU")


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENVIRONMENT, raising=False)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands in for a GPU, with real numbers."""
    if ENVIRONMENT not in os.environ:
        monkeypatch.setenv(ENVIRONMENT, str(environment()))
    monkeypatch.setenv("FAKEGPU_MODE", "lazy")
    monkeypatch.setenv("FAKEGPU_OPTS", "-cl-opt-disable")


@pytest.mark.usefixtures("no_gpu")
def test_a_missing_gpu_is_reported(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    llama = exported("llama/ov-stateful")
    with pytest.raises(
        UnsupportedError, match="this machine has no GPU, and GRAPHPASS_GPU_ENVIRONMENT names no"
    ) as caught:
        compare_on_device(llama, llama, "GPU")
    assert caught.value.id == "GP321"
    target = "gpu{cache=reorder,trim=begin-one}"
    done = in_process(capfd, "convert", export("llama", "ov-stateful"), "-o", tmp_path / "out", "--target", target)
    assert done.code == 4
    assert done.err.startswith("error: GP321: the result cannot be verified: this machine has no GPU")
    assert not (tmp_path / "out").exists()


def test_an_invalid_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path))
    llama = exported("llama/ov-stateful")
    with pytest.raises(UsageError, match="GP228"):
        compare_on_device(llama, llama, "GPU")


def test_a_crashing_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "env.sh").write_text("echo no OpenCL >&2; exit 3\n")
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "python").write_text("")
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path))
    llama = exported("llama/ov-stateful")
    with pytest.raises(UnsupportedError, match="its process ended with 3: no OpenCL") as caught:
        compare_on_device(llama, llama, "GPU")
    assert caught.value.id == "GP321"


def test_an_unknown_property(capfd: pytest.CaptureFixture[str]) -> None:
    done = in_process(capfd, "verify", export("llama", "onnx"), export("llama", "onnx"), "--property", "NPUW_DEVICES")
    assert done.code == 2
    assert "'NPUW_DEVICES' is not a property such as NPUW_DEVICES=CPU" in done.err


@pytest.mark.slow
@pytest.mark.usefixtures("gpu")
def test_reorder_in_the_form_of_the_installed_plugin(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source, result = export("llama", "ov-stateful"), tmp_path / "out"
    done = in_process(capfd, "convert", source, "-o", result, "--target", "gpu{cache=reorder}")
    assert done.code == 0, done.err
    assert "contract  holds; confirmed: compiled on the GPU plugin, openvino 2026.4.1" in done.out
    assert "verified  same" in done.out
    noted = json.loads((result / "graphpass.json").read_bytes())
    assert noted["options"]["made_for"] == "GPU plugin of OpenVINO 2026.4.1"
    assert "insert-reorder{trim=begin-one}" in noted["pipeline"]
    done = in_process(capfd, "verify", source, result)
    assert done.err.startswith("error: GP367: device CPU does not support a model that trims its caches")
    done = in_process(capfd, "verify", source, result, "--device", "GPU", "--edits", "--steps", "2", "-v")
    assert done.code == 0, done.err  # slow machines report their progress there
    assert "before step 8: reorder 7,8 to 5,6, trim 2" in done.out


@pytest.mark.slow
def test_npuw(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source, result = export("llama", "ov-stateful"), tmp_path / "out"
    assert in_process(capfd, "convert", source, "-o", result, "--target", "npu").code == 0
    done = in_process(capfd, "verify", source, result, *NPUW, "--edits", "--verbose")
    assert (done.code, done.err) == (0, "")
    assert "reorder: the runtime of the candidate cannot reorder slots" in done.out
