"""Devices that ONNX Runtime does not run models on."""

import pytest

from graphpass.errors import UsageError
from graphpass.runtime.backends.device import Device


@pytest.mark.parametrize("name", ["CPU", "WEBGPU"])
def test_onnxruntime_has_devices_of_its_own(name):
    Device(name).require_onnxruntime()


@pytest.mark.parametrize(
    ("device", "words"),
    [
        (Device("GPU"), "--target gpu"),
        (Device("NPU"), "--target npu"),
        (Device("QNN"), "--target qnn"),
        (Device("TPU"), "graphpass devices lists"),
        (Device(properties={"NUM_STREAMS": 1}), "NUM_STREAMS"),
    ],
)
def test_other_devices_and_properties_are_refused_with_a_remedy(device, words):
    with pytest.raises(UsageError, match="GP240") as raised:
        device.require_onnxruntime()
    assert words in f"{raised.value.message} {raised.value.hint}"
