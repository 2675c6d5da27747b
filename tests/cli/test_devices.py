"""`graphpass devices`: runtimes, adapters and what is missing."""

import json
from importlib.metadata import version

from support.commands import in_process
from support.report_schemas import assert_valid_report


def test_installed_runtimes_are_listed(capfd):
    told = json.loads(in_process(capfd, "devices", "--format", "json").out)
    assert_valid_report(told, "devices")
    found = {one["name"]: one for one in told["runtimes"]}
    assert found["ONNX Runtime"]["version"] == version("onnxruntime")
    names = [one["name"] for one in found["ONNX Runtime"]["adapters"]]
    assert "CPUExecutionProvider" in names
    assert any(one["name"].startswith("CPU: ") for one in found["OpenVINO"]["adapters"])
