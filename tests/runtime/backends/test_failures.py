"""Errors of runtimes as errors of graphpass."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from graphpass import load
from graphpass.errors import UnsupportedError
from graphpass.runtime.backends.failures import running
from graphpass.runtime.backends.onnxruntime_request import OnnxRuntimeRequest


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


def test_bytes_in_messages_are_escaped(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    node = helper.make_node("Resize", ["x"], ["y"], mode=b"\xff")
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", "y")]
    graph = helper.make_graph([node], "g", ports[:1], ports[1:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    with pytest.raises(UnsupportedError, match=r"^GP321: ONNX Runtime cannot compile the model: .*\\xff"):
        OnnxRuntimeRequest(load(path), exact=False)
    assert capfd.readouterr() == ("", "")
