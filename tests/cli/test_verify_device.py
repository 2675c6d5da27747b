"""Names of devices that a model does not run on."""

from __future__ import annotations

from typing import Any

import pytest
from support.commands import in_process
from support.models import export


@pytest.mark.parametrize(
    ("form", "device", "line", "hint"),
    [
        ("onnx", "CUDA", "GP240: ONNX Runtime runs this model on CPU and WEBGPU, not on 'CUDA'", "graphpass devices"),
        ("onnx", "QNN", "GP240: ONNX Runtime runs this model on CPU and WEBGPU, not on 'QNN'", "--target qnn"),
        ("onnx", "GPU", "GP240: ONNX Runtime runs this model on CPU and WEBGPU, not on 'GPU'", "--target gpu"),
        ("ov-stateful", "CUDA", "GP321: OpenVINO finds no device 'CUDA' here, only CPU", "WEBGPU and QNN run ONNX"),
        ("ov-stateful", "webgpu", "GP321: OpenVINO finds no device 'WEBGPU' here, only CPU", "WEBGPU and QNN run ONNX"),
        ("ov-stateful", "HETERO:XPU,CPU", "GP321: OpenVINO finds no device 'XPU' here, only CPU", "graphpass devices"),
        ("ov-stateful", "HETERO:CPU", "GP321: OpenVINO lists no properties of HETERO:CPU", "name one device"),
    ],
)
def test_a_device_is_refused_by_name(capfd: Any, form: str, device: str, line: str, hint: str) -> None:
    llama = export("llama", form)
    done = in_process(capfd, "verify", llama, llama, "--device", device, "--steps", "1")
    assert done.code != 0
    assert line in done.err
    assert hint in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("device", ["WEBGPU", "HTP", "GPU"])
def test_pairs_in_onnx_run_on_two_devices(capfd: Any, tmp_path: Any, device: str) -> None:
    llama = export("llama", "onnx")
    target = "qnn{prompt=8,chunk=4,capacity=16}"
    assert in_process(capfd, "convert", llama, "--target", target, "--no-verify", "-o", tmp_path / "out").code == 0
    done = in_process(capfd, "verify", llama, tmp_path / "out", "--device", device)
    assert done.code == 2
    assert f"GP240: a prefill and a decode model in ONNX are compared on CPU and QNN, not on '{device}'" in done.err
