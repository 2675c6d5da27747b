"""Work in a process of its own: how it ended, in one line."""

from __future__ import annotations

import pytest

from graphpass.runtime.devices.apart import run_apart

OF_NODE = """
node:internal/modules/run_main:123
    triggerUncaughtException(

Error [ModelFileNotFoundError]: file was not found locally at "/model/onnx/model.onnx".
    at async page (file:///a.js:388:19)

Node.js v20.20.2
"""
OF_PYTHON = """
Traceback (most recent call last):
  File "a.py", line 1, in <module>
ImportError: no module x
"""


@pytest.mark.parametrize(
    ("script", "ended"),
    [
        ("exit 3", "its process ended with 3"),
        ("kill -SEGV $$", "its process ended with -11"),
        ("echo no driver >&2; exit 3", "its process ended with 3: no driver"),
        (f"cat >&2 <<'END'{OF_PYTHON}END\nexit 1", "its process ended with 1: ImportError: no module x"),
        (
            f"cat >&2 <<'END'{OF_NODE}END\nexit 1",
            "its process ended with 1: Error [ModelFileNotFoundError]: file was not found locally at "
            '"/model/onnx/model.onnx".',
        ),
        ("sleep 60", "it did not answer within 1 seconds"),
        ("touch $1; exit 3", ""),
    ],
)
def test_the_end_of_the_process_is_reported(script, ended, tmp_path):
    answer = tmp_path / "answer"
    assert run_apart(["/bin/sh", "-c", script, "sh", str(answer)], answer, 1) == ended
