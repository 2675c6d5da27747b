"""Models of fixed capacity, and steps of them beside those of growing caches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime

from graphpass import PassManager, parse
from graphpass.dialects.onnx.model import OnnxModel

if TYPE_CHECKING:
    from graphpass.ir.model import Model
    from graphpass.runtime import DecodeSession


CAPACITY = 24


def fixed(model: Model, capacity: int = CAPACITY) -> OnnxModel:
    result = PassManager(parse(f"static-cache{{capacity={capacity}}}")).run(model).model
    assert isinstance(result, OnnxModel)
    return result


def follow(growing: DecodeSession, static: DecodeSession, prompt: np.ndarray, steps: int) -> None:
    expected, found = growing.prefill(prompt), static.prefill(prompt)
    for step in range(min(steps, 4) + 1):
        if step:
            token = expected[:, -1].argmax(-1)
            expected, found = growing.step(token), static.step(token)
        tolerance = 2e-2 if found.dtype == np.float16 else 1e-4
        np.testing.assert_allclose(found, expected, atol=tolerance)
        assert (found.argmax(-1) == expected.argmax(-1)).all()


def rename_input(model: OnnxModel, old: str, new: str) -> None:
    for info in model.proto.graph.input:
        info.name = new if info.name == old else info.name
    for node in model.proto.graph.node:
        node.input[:] = [new if name == old else name for name in node.input]


def plain_session(model: OnnxModel) -> Any:
    with model.on_disk() as path:
        return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
