"""Features of GroupQueryAttention that WebGPU's kernel computes, against the table of `providers.py`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from graphpass.runtime.devices import webgpu
from graphpass.runtime.devices.apart import run_apart
from graphpass.targets.ort.providers import PROVIDERS


@pytest.mark.slow
def test_unsupported_features_of_the_kernel(tmp_path):
    if isinstance(variables := webgpu.environment(), str):
        pytest.skip(variables)
    answer = tmp_path / "answer.json"
    script = str(Path(__file__).with_name("webgpu_operators.py"))
    assert run_apart([sys.executable, script, str(answer)], answer, 300, variables) == ""
    found = json.loads(answer.read_text())
    refused = {name: error for name, error in found.items() if isinstance(error, str)}
    assert set(refused) == {"not causal", "not causal, packed"}
    assert "causal=0 is not implemented" in refused["not causal"]
    wrong = {name for name, size in found.items() if not isinstance(size, str) and size > 1e-5}
    assert wrong == {"softcap", "softcap, packed"}
    assert PROVIDERS["webgpu"].lacks >= {"mask", "softcap"}
    assert not PROVIDERS["webgpu"].lacks & {"window", "sinks", "padding", "rotary", "packing"}
