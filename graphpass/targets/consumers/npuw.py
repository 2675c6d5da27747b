"""NPUW's view: the names of variables, and a Gather by ``beam_idx`` right behind each.

Rules, of openvino: ``src/core/src/pass/stateful_to_stateless.cpp`` (the names, the Gather) and
``src/plugins/intel_npu/src/plugin/npuw/llm_compiled_model.cpp`` with its ``npuw_transformations`` (what becomes of the
inputs); the regular expressions stand in the 2026.4.1 libraries. Observed there: other names, further inputs, a Slice
or Convert between Gather and Concat, and another order of the axes are refused; bloom, which has no ``position_ids``,
fails at its first step, and lfm2, which has none either, gives wrong numbers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from graphpass.ir.cache import Axes
from graphpass.targets.consumers.view import Sees, View, is_mistaken, judged, listed, names_of, not_stateful_ir

if TYPE_CHECKING:
    from graphpass.ir.cache import Inventory
    from graphpass.ir.graph import Graph, Node
    from graphpass.ir.model import Model

__all__ = ["KNOWN_INPUTS", "gather_by_beams", "named_kind", "view"]

CONSUMER = "NPUW"

_DENSE = re.compile(r"past_key_values\.\d+\.(key|value)present\.\d+\.(key|value)")
_HYBRID = re.compile(r"cache_params\.past\.(key|value|conv|ssm)\.\d+cache_params\.present\.(key|value|conv|ssm)\.\d+")

_ORDER = Axes(batch=0, heads=1, sequence=2, head_dim=3)

#: The inputs that it knows, those of some families included; every other it takes for a cache.
KNOWN_INPUTS = frozenset(
    {"input_ids", "inputs_embeds", "attention_mask", "position_ids", "beam_idx", "token_type_ids", "per_layer_inputs"}
)


def view(model: Model, inventory: Inventory) -> View:
    """What the NPU plugin's ``NPUW_LLM`` takes the caches of ``model`` for."""
    outside = not_stateful_ir(
        CONSUMER, model, inventory, finds="names", cross="runs encoder-decoder models in another way"
    )
    if outside is not None:
        return outside
    reads = {node.attributes["variable"]: node for node in model.graph.of_op("ReadValue")}
    sees = {name: _sees(model.graph, name, node) for name, node in reads.items()}
    problems = [*_ports(model), *_names(inventory, sees), *_layout(model, inventory, reads)]
    return judged(CONSUMER, inventory, sees, problems)


def named_kind(variable: str) -> Sees:
    """What NPUW takes a variable of this name for."""
    if _DENSE.fullmatch(variable):
        return "kv"
    found = _HYBRID.fullmatch(variable)
    if found is None:
        return "nothing"
    return "kv" if found[1] in {"key", "value"} else "linear"


def _sees(graph: Graph, variable: str, read: Node) -> Sees:
    # Without a Gather, only names of cache_params are made inputs again; the rest stays inside.
    if _HYBRID.fullmatch(variable) is None and gather_by_beams(graph, read) is None:
        return "nothing"
    return named_kind(variable)


def gather_by_beams(graph: Graph, read: Node) -> Node | None:
    """The Gather by ``beam_idx`` that reads a variable as it is."""
    for use in graph.uses(read.outputs[0]):
        index = use.node.inputs[1] if use.node.op == "Gather" and use.port == 0 else None
        if index is not None and graph.producer(index).name == "beam_idx":
            return use.node
    return None


def _names(inventory: Inventory, sees: dict[str, Sees]) -> list[str]:
    wrong: dict[Sees, list[str]] = {}
    for cache in inventory.caches:
        seen = sees.get(cache.name, "nothing")
        if is_mistaken(cache, seen):
            wrong.setdefault(seen, []).append(cache.name)
    words = {"kv": "will take {} for a KV cache because of its name", "linear": "will take {} for a linear cache"}
    lines = [f"{words[seen].format(listed(names))}" for seen, names in wrong.items() if seen != "nothing"]
    for name in wrong.get("nothing", [])[:1]:
        called = "past_key_values.N.keypresent.N.key or cache_params.past.conv.Ncache_params.present.conv.N"
        cause = f"it is not called like {called}" if named_kind(name) == "nothing" else "no Gather by beam_idx reads it"
        lines.append(f"will fail because it does not know {listed(wrong['nothing'])}: {cause}")
    return lines


def _layout(model: Model, inventory: Inventory, reads: dict[str, Node]) -> list[str]:
    graph = model.graph
    kv = [cache for cache in inventory.of_kind("kv") if cache.name in reads]
    permuted = [cache.name for cache in kv if cache.axes != _ORDER]
    lines = []
    if permuted:
        lines.append(f"will fail because {listed(permuted)} is not laid out as [batch, heads, sequence, head_dim]")
    between: dict[str, list[str]] = {}
    for cache in kv:
        read = reads[cache.name]
        gather = gather_by_beams(graph, read)
        if gather is None and cache.name not in permuted and named_kind(cache.name) != "nothing":
            between.setdefault("no Gather by beam_idx reads it", []).append(cache.name)
        for use in graph.uses(gather.outputs[0]) if gather is not None else ():
            if use.node.op not in {"Concat", "ShapeOf"}:
                cause = f"{use.node.op} stands between its Gather and its Concat"
                between.setdefault(cause, []).append(cache.name)
    lines += [f"will fail on {listed(names)} because {cause}" for cause, names in between.items()]
    return lines


def _ports(model: Model) -> list[str]:
    found = {name for _, names in names_of(model, model.inputs) for name in names}
    lines = []
    if "beam_idx" not in found:
        lines.append("will fail because the model has no input beam_idx")
    if "position_ids" not in found:
        lines.append("will fail or give wrong numbers because the model has no input position_ids")
    for port, names in names_of(model, model.inputs):
        if not names & KNOWN_INPUTS:
            lines.append(f"will fail because it takes the input {port.name}, which it does not know, for a cache")
    return lines
