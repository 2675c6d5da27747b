"""Read a model file by its dialect."""

from __future__ import annotations

from pathlib import Path

from graphpass.ir.model import Model


def read_file(file: Path) -> Model:
    """Return the model of a file; weights are read when their values are first needed.

    Args:
        file: A ``.onnx`` file, or an ``.xml`` file of OpenVINO.

    Raises:
        ReadError: GP104 to GP107, the file is damaged, or of unknown format.
    """
    if file.suffix.lower() == ".onnx":
        from graphpass.dialects.onnx.model import OnnxModel

        return OnnxModel.load(file)
    from graphpass.dialects.openvino.model import OpenVINOModel

    return OpenVINOModel.load(file)
