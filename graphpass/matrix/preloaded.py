"""Load the libraries that cells need; the server that forks their processes imports this."""

import onnx
import onnxruntime
import openvino

from graphpass.jobs import convert, run
from graphpass.reports import outcome

__all__ = ["convert", "onnx", "onnxruntime", "openvino", "outcome", "run"]
