"""Operators that HTP runs, against the table of `graphpass.targets.qnn.operators`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from graphpass.runtime.devices.apart import run_apart
from graphpass.targets.qnn import trial


@pytest.mark.slow
@pytest.mark.skipif(not trial.is_installed(), reason="onnxruntime-qnn is not installed: pip install .[qnn]")
def test_operators_run_on_htp_as_predicted(tmp_path: Path) -> None:
    answer, script = tmp_path / "answer.json", str(Path(__file__).with_name("htp_operators.py"))
    assert run_apart([sys.executable, script, str(answer)], answer, 600) == ""
    found = json.loads(answer.read_text())
    differ = {
        name: seen
        for name, seen in found.items()
        if any(
            (predicted is None) != (observed is None) for predicted, observed in zip(seen[::2], seen[1::2], strict=True)
        )
    }
    assert differ == {}
    assert {name for name, seen in found.items() if seen[-1] is not None} == {
        "CumSum over rows, i32",
        "Mod, i32",
        "Mod, i64",
    }
    assert len(found) > 200
