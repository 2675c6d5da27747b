"""Run layers of experts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import onnxruntime

from graphpass.dialects.onnx.model import OnnxModel
from support.expert_graphs import HIDDEN


def run(model: OnnxModel | Path, tokens: numpy.ndarray) -> numpy.ndarray:
    source = str(model) if isinstance(model, Path) else model.proto.SerializeToString()
    session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": tokens})[0]


def tokens(dtype: Any = numpy.float32) -> numpy.ndarray:
    return numpy.random.default_rng(1).standard_normal((2, 5, HIDDEN)).astype(dtype)
