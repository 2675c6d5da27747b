"""Hidden states in ``genai_config.json``, which heads for multi-token prediction (MTP) read.

Source: ``src/mtp_generator.cpp`` and ``src/models/hidden_states.cpp`` of onnxruntime-genai, and runs of version 0.18.
``MtpGenerator`` opens the folder of a model that returns states and the folder of a head that reads them.
"""

from __future__ import annotations

from typing import Any

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.symbolic.hidden_size import row_size
from graphpass.ir.inputs import TARGET_STATES
from graphpass.ir.model import Model
from graphpass.ir.types import Port
from graphpass.ir.values import REALS

#: Source file that drafts with a head.
STATES_SOURCE = "onnxruntime-genai/src/mtp_generator.cpp"


def state_entries(model: Model) -> tuple[dict[str, Any], dict[str, str], dict[str, Any]]:
    """Return the entries for hidden states of a decoder.

    Args:
        model: The decoder.

    Returns:
        Entries of section ``decoder`` besides names, names of its outputs, and entries of section ``model``.
    """
    states = _states(model)
    outputs = {"hidden_states": states[0].name} if len(states) == 1 else {}
    if TARGET_STATES in model.graph.parameters:
        return {"hidden_size": row_size(model, TARGET_STATES)}, outputs, {}
    size = (states[0].shape or ())[-1] if outputs else None
    if not isinstance(size, int):
        return {}, {}, {}
    return {"hidden_size": size}, outputs, {"mtp": {"main_hidden_states": states[0].name}}


def why_no_mtp(model: Model) -> str | None:
    """Return why ``MtpGenerator`` does not run a model; ``None`` if it does, or without states.

    Args:
        model: The decoder.
    """
    size, _, _ = state_entries(model)
    logits = next((port for port in model.outputs if port.name == "logits"), None)
    if not size or logits is None or logits.element_type != "f32":
        return None
    return "MtpGenerator fails to cast logits of type f32 (Cast - input and output types are the same); expected f16"


def _states(model: Model) -> list[Port]:
    """Return the outputs ``[batch, length, features]`` other than logits and caches."""
    written = {cache.write for cache in analyze_caches(model).caches} | {"logits"}
    rest = [port for port in model.outputs if port.name not in written]
    return [port for port in rest if port.element_type in REALS and len(port.shape or ()) == 3]
