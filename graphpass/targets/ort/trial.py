"""Trial on ONNX Runtime, with a prompt and a step for decoders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.engine.findings import Observation
from graphpass.ir.operators import COMPRESSED_PRODUCTS
from graphpass.ir.values import weight_bytes

if TYPE_CHECKING:
    from graphpass.dialects.onnx.model import OnnxModel
    from graphpass.ir.model import Model


#: Bytes of weights above which they are not copied and repacked.
_LARGE = 2**28


def observe(model: Model) -> Observation:
    """Open ``model`` and run it; large weights are read in place if kernels support it.

    Returns:
        The observation, with the names of fused operators.
    """
    from graphpass.runtime.backends.onnxruntime_request import weights_in_place

    is_compressed = any(True for _ in model.graph.of_op(*COMPRESSED_PRODUCTS, "QMoE"))
    if weight_bytes(model.graph) >= _LARGE and not is_compressed:
        with weights_in_place():
            observation = _observe(model)
        # Kernels may support repacked weights only, so only a refusal with the usual options counts.
        if observation.refused is None:
            return observation
    return _observe(model)


def _observe(model: Model) -> Observation:
    import onnxruntime

    from graphpass.dialects.onnx.model import OnnxModel
    from graphpass.dialects.onnx.precision import first_in_bf16
    from graphpass.errors import UnsupportedError
    from graphpass.runtime import open_session
    from graphpass.runtime.embedding_model import let_take_ids

    assert isinstance(model, OnnxModel)
    tried = f"opened on ONNX Runtime {onnxruntime.__version__}"
    if model.analysis(first_in_bf16) is not None:
        # A session would compute in f32.
        return Observation(tried, refused=_refusal(model))
    try:
        session = open_session(model)
    except UnsupportedError as error:
        # With another id, sessions do not support the model: an encoder, or the decoder of an encoder-decoder.
        return Observation(tried, refused=error.message if error.id == "GP321" else _refusal(model))
    try:
        let_take_ids(model, session)
        session.prefill([[5, 9, 17]])
        session.step([[5]])
    except UnsupportedError as error:
        return Observation(f"{tried}, and fed a prompt", refused=error.message)
    return Observation(f"{tried}, and ran a prompt and a step")


def _refusal(model: OnnxModel) -> str | None:
    from graphpass.errors import UnsupportedError
    from graphpass.runtime.backends.onnxruntime_request import OnnxRuntimeRequest

    try:
        OnnxRuntimeRequest(model, exact=False)
    except UnsupportedError as error:
        return error.message
    return None
