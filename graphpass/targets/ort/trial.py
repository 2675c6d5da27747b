"""Try a model on ONNX Runtime, with a prompt and a step of decoders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.engine.findings import Observation

if TYPE_CHECKING:
    from graphpass.ir.model import Model

__all__ = ["observe"]


def observe(model: Model) -> Observation:
    """Open ``model`` and run it."""
    import onnxruntime

    from graphpass.errors import UnsupportedError
    from graphpass.runtime import open_session

    tried = f"opened on ONNX Runtime {onnxruntime.__version__}"
    try:
        session = open_session(model)
    except UnsupportedError as error:
        if error.id == "GP321":
            return Observation(tried, refused=error.message)
        # Only a session of graphpass does not know how to feed it: an encoder, a decoder with an encoder's results.
        return _opened(model, tried)
    try:
        session.prefill([[5, 9, 17]])
        session.step([[5]])
    except UnsupportedError as error:
        return Observation(f"{tried}, and fed a prompt", refused=error.message)
    return Observation(f"{tried}, and ran a prompt and a step")


def _opened(model: Model, tried: str) -> Observation:
    import onnxruntime

    from graphpass.dialects.onnx.model import OnnxModel
    from graphpass.errors import UnsupportedError
    from graphpass.runtime.backends.failures import compiling

    assert isinstance(model, OnnxModel)
    try:
        with model.on_disk() as path, compiling("ONNX Runtime"):
            onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except UnsupportedError as error:
        return Observation(tried, refused=error.message)
    return Observation(tried)
