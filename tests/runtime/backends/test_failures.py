"""Errors of runtimes as errors of graphpass."""

from __future__ import annotations

import pytest

from graphpass.errors import UnsupportedError
from graphpass.runtime.backends.failures import running


def test_source_lines_are_left_out_of_openvino_errors() -> None:
    text = (
        "Exception from src/inference/infer_request.cpp:224:\nException from src/node.cpp:794:\n[CPU] Shapes part\n\n"
    )
    with (
        pytest.raises(UnsupportedError, match=r"^GP322: OpenVINO failed to run the model: \[CPU\] Shapes part$"),
        running("OpenVINO"),
    ):
        raise RuntimeError(text)
    with pytest.raises(UnsupportedError, match=r"the model: MemoryError$"), running("OpenVINO"):
        raise MemoryError
