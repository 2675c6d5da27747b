"""`check_model`: predict, then confirm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.errors import UsageError
from graphpass.ir.phase import Phase
from graphpass.targets.common import not_openvino
from graphpass.targets.cpu import confirm_cpu, cpu
from graphpass.targets.finding import Confirmation, Report, compare
from graphpass.targets.gpu import confirm_gpu, gpu
from graphpass.targets.npu import confirm_npu, confirm_npu_static, npu, static
from graphpass.targets.ort import confirm_ort, ort
from graphpass.targets.paged import confirm_paged, paged

if TYPE_CHECKING:
    from graphpass.ir.model import Model
    from graphpass.targets.finding import Finding

__all__ = ["TARGETS", "check_model"]

_RULES = {"cpu": cpu, "gpu": gpu, "npu": npu, "ort": ort, "paged": paged}

_TRIALS = {"cpu": confirm_cpu, "gpu": confirm_gpu, "npu": confirm_npu, "paged": confirm_paged}

#: Those that have rules of their own for models of static shapes, whose caches are no caches to the others.
_AHEAD_OF_TIME = frozenset({"npu", "ort"})

#: What can be checked.
TARGETS = tuple(_RULES)


def check_model(model: Model, target: str, *, confirm: bool = True) -> Report:
    """Say what a target's runtime will do with ``model``.

    Args:
        model: What is to run there.
        target: One of `TARGETS`.
        confirm: Whether to try it out, as far as that is possible on this machine.

    Returns:
        What was found.

    Raises:
        UsageError: GP223, there are no rules for the target; GP228, there is no such environment for a GPU.
    """
    if target not in _RULES:
        name = target.partition("{")[0]
        hint = f"name it without options: {name}" if name in _RULES else f"there are for: {', '.join(TARGETS)}"
        raise UsageError("GP223", f"there are no rules for target {target}", hint)
    refused = None if target == "ort" else not_openvino(model, target)
    phase = Phase.find(model) if target in _AHEAD_OF_TIME else None
    if phase is not None:
        findings = refused or static.predict(model, phase)
    else:
        findings = refused or _RULES[target].predict(model, analyze_caches(model))
    return Report(target, findings, _confirmed(model, target, findings) if confirm else None)


def _confirmed(model: Model, target: str, findings: tuple[Finding, ...]) -> Confirmation:
    from graphpass.dialects.openvino.model import OpenVINOModel

    if target == "ort":
        observed = confirm_ort.observe(model)
    elif isinstance(model, OpenVINOModel):
        is_static = target == "npu" and Phase.find(model) is not None
        observed = confirm_npu_static.observe(model) if is_static else _TRIALS[target].observe(model)
    else:
        observed = "the model has to be converted first"
    return Confirmation("impossible", observed) if isinstance(observed, str) else compare(findings, observed)
