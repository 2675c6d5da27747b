"""Load all that cells need; the server that forks their processes imports this."""

import importlib
import pkgutil

import numpy.random
import onnx
import onnxruntime
import openvino

__all__ = ["numpy", "onnx", "onnxruntime", "openvino"]

# A third of a cell's own time, if each imported what it needs: 0.3 s for a tiny model.
for _found in pkgutil.walk_packages(importlib.import_module("graphpass").__path__, "graphpass."):
    if not _found.name.startswith(("graphpass.cli", "graphpass.api", "graphpass.testing")):
        importlib.import_module(_found.name)
