"""Import all modules that cells need; preloaded by the fork server of cells."""

import importlib
import pkgutil

import numpy.random
import onnx
import onnxruntime
import openvino

__all__ = ["numpy", "onnx", "onnxruntime", "openvino"]

# Imports in each cell would take 0.3 s, a third of the time of a tiny model.
for _module in pkgutil.walk_packages(importlib.import_module("graphpass").__path__, "graphpass."):
    if not _module.name.startswith(("graphpass.cli", "graphpass.api", "graphpass.testing")):
        importlib.import_module(_module.name)
