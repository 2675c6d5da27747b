"""`check_model`: predict how a runtime executes a model, and confirm it by a trial."""

from __future__ import annotations

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.engine.findings import Confirmation, ContractReport, Finding, Observation, confirmation_of
from graphpass.engine.pipeline import format_target, parse_target
from graphpass.engine.target import Target
from graphpass.ir.model import Model
from graphpass.ir.values import weight_bytes
from graphpass.machine import MEMORY_SHARE, available_memory
from graphpass.progress import stage

#: By dialect of a target: what it runs, and a remedy for other models.
_RUNS = {
    "onnx": "runs ONNX: name the exported ONNX model, since no pass converts OpenVINO IR to ONNX",
    "openvino": "runs OpenVINO IR: run graphpass convert first",
}


def check_model(
    model: Model, target: Target | str, *, confirm: bool = True, encoder: Model | None = None
) -> ContractReport:
    """Predict how a target's runtime executes ``model``, and confirm the prediction by a trial.

    Args:
        model: The model.
        target: A target, or its name with options: ``gpu{cache=reorder}``.
        confirm: Whether to run a trial, if this machine has the runtime. Models whose weights exceed half of the
            available memory are not tried.
        encoder: The encoder, if ``model`` is the decoder of an encoder-decoder.

    Returns:
        The findings; without a confirmation unless ``confirm`` is set.

    Raises:
        UsageError: GP223, the target has no rules; GP228, the environment of a GPU does not exist; or as
            `graphpass.engine.pipeline.parse_target`.
    """
    chosen = parse_target(target) if isinstance(target, str) else target
    name = format_target(chosen)
    if chosen.has_rules and model.dialect != chosen.dialect:
        reason = f"{chosen.name} {_RUNS[chosen.dialect]}"
        refused = Finding.of_model(model, "refused", reason)
        return ContractReport(name, (refused,), Confirmation("impossible", reason) if confirm else None)
    with stage("predicting"):
        inventory = analyze_caches(model)
        findings = (
            chosen.predict(model, inventory) if encoder is None else chosen.predict_beside(encoder, model, inventory)
        )
    if not confirm:
        return ContractReport(name, findings)
    observed: Observation | str = _too_large(model, encoder)
    if not observed:
        with stage("trying the runtime"):
            observed = chosen.observe(model) if encoder is None else chosen.observe_beside(encoder, model)
    confirmation = (
        Confirmation("impossible", observed) if isinstance(observed, str) else confirmation_of(findings, observed)
    )
    return ContractReport(name, findings, confirmation)


def _too_large(*models: Model | None) -> str:
    """Return why models are too large for a trial; empty if they are not."""
    size, free = sum(weight_bytes(model.graph) for model in models if model is not None), available_memory()
    if size <= MEMORY_SHARE * free:
        return ""
    return f"weights of {size / 1e9:.1f} GB are more than half of the {free / 1e9:.1f} GB of memory that are free here"
