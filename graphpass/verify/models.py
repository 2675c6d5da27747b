"""Compare models, by path or loaded."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from graphpass.errors import UsageError
from graphpass.io import load
from graphpass.ir.model import Model
from graphpass.progress import stage
from graphpass.runtime.encoder_decoder import find_encoder_decoder, read_parts
from graphpass.verify.cache_kinds import with_kinds_of
from graphpass.verify.encoder_decoder import compare_encoder_decoders
from graphpass.verify.on_device import compare_on_device
from graphpass.verify.session_forms import in_session_form, notes_on_form

if TYPE_CHECKING:
    from graphpass.verify.comparison import Comparison


def verify(
    reference: str | os.PathLike[str] | Model,
    candidate: str | os.PathLike[str] | Model,
    *,
    steps: int = 12,
    prompt_ids: Sequence[int] | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    edits: bool = False,
    budget: str | None = None,
    all_layers: bool = False,
    allow: Collection[str] = (),
    device: str = "CPU",
    properties: Mapping[str, Any] | None = None,
    padding: Literal["left", "right"] = "left",
) -> Comparison:
    """Run two models in lockstep and report the first difference.

    Models of an encoder and a decoder are compared by hidden states and logits; of the options, they accept ``steps``,
    ``atol`` and ``rtol``.

    Args:
        reference: The source model: a file, a folder with one model or with an encoder and its decoder, or a loaded
            model.
        candidate: The model to compare; the same types.
        steps: Greedy steps after each prefill.
        prompt_ids: Token ids of the first prompt.
        atol: Absolute tolerance; ``None`` for that of the models' types.
        rtol: Relative tolerance, with the same default.
        edits: Whether to edit the caches of both models between steps, as speculative decoding and beam search do.
        budget: Time and memory for whole models, ``60s,4GB``; models above are compared layer by layer.
        all_layers: Whether to compare layer by layer, and run all layers.
        allow: Names of the candidate's nodes that may compare the batch size, a row index or token ids although the
            reference does not, or have different results on random numbers.
        device: OpenVINO device of the candidate, or ``"WEBGPU"`` for ONNX.
        properties: OpenVINO properties of the candidate.
        padding: Side on which the candidate supports padding of shorter rows: ``"right"`` for results of ``ort-genai``
            and ``ort{padding=right}``, else ``"left"``.

    Returns:
        The comparison; `Comparison.passed` is the verdict.

    Raises:
        ReadError: A model cannot be read.
        UsageError: GP201, a folder has several models; GP250, an argument is out of range.
        UnsupportedError: A model cannot be run on this machine.

    Examples:
        >>> import graphpass
        >>> graphpass.verify("build/fixtures/llama/onnx", "build/fixtures/llama/ov-stateless", steps=2).passed
        True
    """
    parts = [
        None if isinstance(model, Model) else find_encoder_decoder(Path(model)) for model in (reference, candidate)
    ]
    if parts[0] is not None and parts[1] is not None:
        if edits or all_layers or allow or properties or budget or prompt_ids or padding != "left" or device != "CPU":
            raise UsageError(
                "GP250", "models of an encoder and a decoder are compared with the options steps, atol and rtol alone"
            )
        with stage("comparing"):
            return compare_encoder_decoders(
                read_parts(parts[0]), read_parts(parts[1]), steps=steps, atol=atol, rtol=rtol
            )
    models = [model if isinstance(model, Model) else load(Path(model)) for model in (reference, candidate)]
    forms = in_session_form(models[0]), in_session_form(models[1]) if device == "CPU" else models[1]
    candidate, kinds = with_kinds_of(*forms)
    notes = (*kinds, *notes_on_form(models[0]))
    with stage("comparing"):
        comparison = compare_on_device(
            forms[0],
            candidate,
            device,
            budget=budget,
            all_layers=all_layers,
            allow=tuple(allow),
            properties=dict(properties or {}),
            padding=padding,
            steps=steps,
            prompt_ids=None if prompt_ids is None else tuple(prompt_ids),
            atol=atol,
            rtol=rtol,
            edits=edits,
            examine=True,
        )
    return replace(comparison, skipped=(*comparison.skipped, *notes))
