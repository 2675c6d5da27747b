"""The NPU plugin's contract (NPUW): names, a Gather by ``beam_idx``, one layout, static shapes, all padding masked.

NPUW takes the variables apart again, gives every input a fixed size, and feeds the prompt right-aligned in a window of
that size, so whatever ignores the attention mask reads padding. Rules, of openvino: the files that the findings name;
which models they let through was measured on 2026.4.1.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from graphpass.analysis.attention.rotary import positions_of_angles
from graphpass.analysis.caches.padding import absorbs_padding
from graphpass.analysis.masks.constants import constant_bias, constant_window
from graphpass.ir.cache import Axes
from graphpass.ir.operators import SLICES
from graphpass.targets.base import EDITING_INPUTS, GO_BACK, START_AGAIN
from graphpass.targets.consumers.npuw import KNOWN_INPUTS, gather_by_beams, named_kind
from graphpass.targets.consumers.view import names_of
from graphpass.targets.finding import Finding, Verdict
from graphpass.targets.npu.npu_numbers import data_dependent, unpatched_window, whole_rows_masked
from graphpass.targets.npu.npu_values import is_transposed, misreads
from graphpass.targets.npu.npu_weights import not_widened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphpass.ir.cache import Cache, Inventory
    from graphpass.ir.graph import Graph, Node
    from graphpass.ir.model import Model

__all__ = ["predict"]

_NPUW = "src/plugins/intel_npu/src/plugin/npuw"
_COMPILED = f"{_NPUW}/llm_compiled_model.cpp"
_RESHAPE = f"{_NPUW}/npuw_transformations/reshape_to_static.cpp"
_EMPTY = f"{_NPUW}/embedding/remove_empty_kv_inputs.cpp"
_POSITIONS = f"{_NPUW}/npuw_transformations/add_position_ids_param.cpp"
_REQUEST = f"{_NPUW}/llm_infer_request.cpp"
_VALUES = f"{_NPUW}/npuw_transformations/optimize_value_tensors.cpp"
_MASKS = f"{_NPUW}/npuw_transformations/phi3_sliding_mask.cpp"
_WEIGHTS = f"{_NPUW}/util_xarch.cpp"
_STATELESS = "src/core/src/pass/stateful_to_stateless.cpp"

_ORDER = Axes(batch=0, heads=1, sequence=2, head_dim=3)

_TOKENS = frozenset({"input_ids", "inputs_embeds"})

_BETWEEN = frozenset({"Concat", "ShapeOf"})


def predict(model: Model, inventory: Inventory) -> tuple[Finding, ...]:
    """What the NPU plugin with ``NPUW_LLM`` will do with ``model``, an OpenVINO IR."""
    reads = {node.attributes["variable"]: node for node in model.graph.of_op("ReadValue")}
    instead = START_AGAIN if inventory.of_kind("linear") else GO_BACK
    caches = [_cache(model.graph, cache, reads.get(cache.name), instead) for cache in inventory.caches]
    return (*_whole(model, inventory), *_ports(model, instead), *caches, *_numbers(model, inventory))


def _whole(model: Model, inventory: Inventory) -> Iterator[Finding]:
    name = str(model.path)
    if not inventory.stateful:
        yield Finding("model", name, "refused", reason="it holds no variables: run make-stateful", source=_STATELESS)
    if inventory.of_kind("cross"):
        yield Finding(
            "model", name, "refused", reason="it reads an encoder, which NPUW_LLM does not feed", source=_REQUEST
        )
    node = data_dependent(model.graph)
    if node is not None:
        reason = f"how large {node.op} makes its result depends on what was computed, so no static shape can be given"
        yield Finding("model", name, "refused", node=node.name, reason=reason, source=_RESHAPE)
    for weight, reason in islice(not_widened(model.graph), 1):
        yield Finding("model", name, "refused", node=weight.name, reason=reason, source=_WEIGHTS)


def _ports(model: Model, instead: str) -> Iterator[Finding]:
    ports = names_of(model, model.inputs)
    found = {name for _, names in ports for name in names}
    if "beam_idx" not in found:
        yield Finding("input", "beam_idx", "refused", reason="the model has no such input", source=_STATELESS)
    if "position_ids" not in found:
        if any(node.op == "Range" for node in positions_of_angles(model.graph)):
            reason = "the model has no such input; it is added where Sin and Cos take positions from a Range"
            yield Finding("input", "position_ids", "taken", reason=reason, source=_POSITIONS)
        else:
            reason = "the model has no such input, and the plugin feeds it"
            yield Finding("input", "position_ids", "refused", reason=reason, source=_REQUEST)
    for port, names in ports:
        length = port.shape[1] if names & _TOKENS and port.shape is not None and len(port.shape) > 1 else None
        if isinstance(length, int):
            reason = f"it is fixed to {length} positions at a time, and prompts get a size of their own"
            yield Finding("input", port.name, "refused", reason=reason, source=_RESHAPE)
        if not names & KNOWN_INPUTS:
            reason = "every input of another name is taken for a cache and shaped as one"
            if names & EDITING_INPUTS:
                reason += f": take the model as it was before; {instead}"
            yield Finding("input", port.name, "refused", reason=reason, source=_RESHAPE)
        elif port.element_type != ("i32" if "beam_idx" in names else "i64") and "inputs_embeds" not in names:
            reason = f"it is {port.element_type}, not i64"
            yield Finding("input", port.name, "refused", reason=reason, source=_REQUEST)


def _cache(graph: Graph, cache: Cache, read: Node | None, instead: str) -> Finding:
    def found(verdict: Verdict, node: Node | None, reason: str | None, source: str | None) -> Finding:
        return Finding("cache", cache.name, verdict, cache.layer, node.name if node else None, reason, source)

    if read is None:
        return found("refused", None, "it is an input of the model, not a variable: run make-stateful", _STATELESS)
    if cache.kind not in {"kv", "linear"}:
        return found("refused", read, f"it is of kind {cache.kind}, of which NPUW knows nothing", _RESHAPE)
    if named_kind(cache.name) != cache.kind:
        called = "past_key_values.N.keypresent.N.key or cache_params.past.conv.Ncache_params.present.conv.N"
        return found("refused", read, f"its name is not like {called}", _STATELESS)
    if cache.kind == "linear":
        return found("taken", None, None, None)
    if cache.axes != _ORDER:
        return found("refused", read, "it is not laid out as [batch, heads, sequence, head_dim]", _EMPTY)
    gather = gather_by_beams(graph, read)
    if gather is None:
        first = next((use.node for use in graph.uses(read.outputs[0]) if use.node.op != "ShapeOf"), read)
        return found("refused", first, "no Gather by beam_idx reads the variable directly", _STATELESS)
    for use in graph.uses(gather.outputs[0]):
        if use.node.op not in _BETWEEN:
            reason = f"{use.node.op} stands between the Gather and the Concat of past and new positions"
            if use.node.op in SLICES:
                reason += f": take the model as it was before; {instead}"
            return found("refused", use.node, reason, _EMPTY)
    for use in misreads(graph, read) if cache.role == "value" and is_transposed(graph, read) else ():
        reason = "NPUW transposes values, so that what asks this one how long the past is gets another size"
        return found("refused", use.node, f"{reason}: run read-length-from-keys", _VALUES)
    return found("taken", None, None, None)


def _numbers(model: Model, inventory: Inventory) -> Iterator[Finding]:
    graph = model.graph
    for cache in inventory.of_kind("linear"):
        if absorbs_padding(model, cache):
            reason = (
                "no attention_mask is applied to what enters the state, so it absorbs the padding in front of a prompt"
            )
            yield Finding("cache", cache.name, "wrong", cache.layer, cache.write, reason, _REQUEST)
    for node in unpatched_window(graph):
        reason = (
            "it is a sliding window over slots of the cache, which NPUW mends only in the form And(And(., Greater), "
            "LessEqual) of BitwiseAnds"
        )
        yield Finding("model", str(model.path), "wrong", node=node.name, reason=reason, source=_MASKS)
    for node in graph.of_op("ScaledDotProductAttention"):
        mask = node.inputs[3] if len(node.inputs) > 3 else None
        bias, window = constant_bias(graph, mask), constant_window(graph, mask)
        if window is not None:
            reason = "the window that it holds is over slots of the cache, which hold other positions here"
            yield Finding("attention", node.name, "wrong", node=window.name, reason=reason, source=_MASKS)
        if bias is not None:
            reason = "what it adds to the scores is kept for slots of the cache, which hold other positions here"
            yield Finding("attention", node.name, "wrong", node=bias.name, reason=reason, source=_REQUEST)
    for node in whole_rows_masked(graph):
        reason = "its mask is boolean, so that rows of padding, which are masked whole, give NaN and spread it"
        yield Finding("attention", node.name, "wrong", node=node.name, reason=reason, source=_COMPILED)
