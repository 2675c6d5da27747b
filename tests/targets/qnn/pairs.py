"""Models of a pair for HTP."""

from __future__ import annotations

import functools
from typing import Any

from support.loaded import exported

import graphpass
from graphpass.engine.pipeline import parse_target

QNN = parse_target("qnn{prompt=24,chunk=8,capacity=40,precision=f32}")


@functools.cache
def phase(fixture: str, sizes: str = "length=8,past=24") -> Any:
    """One model of a pair."""
    model = exported(f"{fixture}/onnx")
    passes = graphpass.PassManager((*QNN.pipeline(model), *graphpass.parse(f"make-static{{{sizes}}}")))
    return passes.run(model).model
