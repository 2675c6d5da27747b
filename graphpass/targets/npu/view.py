"""NPUW's view of a model's caches, by names of variables and the findings of `graphpass.targets.npu.rules`."""

from __future__ import annotations

from graphpass.analysis.caches.past import beam_gather
from graphpass.dialects.openvino.variables import is_hybrid, named_kind
from graphpass.engine.view import Sees, View, judged, listed, not_stateful_ir
from graphpass.ir.cache import Inventory
from graphpass.ir.model import Model
from graphpass.targets.npu.rules import predict

_CONSUMER = "NPUW"

_FAILS = {"refused": "will fail on", "wrong": "will compute incorrect results with"}


def view(model: Model, inventory: Inventory) -> View:
    """Return the caches of ``model`` as ``NPUW_LLM`` classifies them.

    Args:
        model: The model; the rule is for stateful OpenVINO IR only.
        inventory: The caches of the model, which the view is compared with.
    """
    outside = not_stateful_ir(
        _CONSUMER, model, inventory, finds="names", cross="runs encoder-decoder models differently"
    )
    if outside is not None:
        return outside
    sees: dict[str, Sees] = {}
    for read in model.graph.of_op("ReadValue"):
        variable = read.attributes["variable"]
        # Without a Gather, NPUW converts only variables named cache_params back to inputs.
        if is_hybrid(variable) or beam_gather(model.graph, read.outputs[0]) is not None:
            sees[variable] = named_kind(variable)
    unknown = {cache.name for cache in inventory.caches if cache.kind == "unknown"}
    problems: dict[tuple[str, str | None], list[str]] = {}
    for finding in predict(model, inventory):
        if not finding.holds and finding.name not in unknown:
            name = "it" if finding.subject == "model" else finding.name
            problems.setdefault((_FAILS[finding.verdict], finding.reason), []).append(name)
    sentences = [f"{fails} {listed(names)} because {reason}" for (fails, reason), names in problems.items()]
    return judged(_CONSUMER, inventory, sees, sentences)
