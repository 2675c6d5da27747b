"""Rules of paged attention, openvino.genai's default backend: SDPAToPagedAttention must transform all caches.

The transformation removes the mask, and loses the parts of the mask that its matchers do not find. Positions become an
input.

Sources: ``sdpa_to_paged_attention.cpp`` of OpenVINO and the matchers beside it; measured on 2026.4.1.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphpass.analysis.attention.alibi import is_exposed
from graphpass.analysis.attention.rotary import moved_positions
from graphpass.analysis.attention.types import Attention
from graphpass.analysis.caches.masks import find_masks
from graphpass.analysis.equations.activations import position_counters
from graphpass.analysis.symbolic.expressions import ZERO
from graphpass.analysis.symbolic.folding import fold, fold_scalar
from graphpass.engine.findings import Finding
from graphpass.ir.cache import Cache, Inventory
from graphpass.ir.graph import Graph, Use, Value
from graphpass.ir.inputs import token_input
from graphpass.ir.miss import Miss, MissError
from graphpass.ir.model import Model
from graphpass.ir.operators import RECURRENCES
from graphpass.ir.values import fixed_size
from graphpass.targets.chain import data_uses, trace_operand
from graphpass.targets.constant_windows import constant_window
from graphpass.targets.rules import attention_findings, dropped_quantizers, require_fused

_TRANSFORMATION = "src/core/src/pass/sdpa_to_paged_attention.cpp"
_PAGED = "src/common/transformations/src/transformations/paged_attention"
_POSITIONS = f"{_PAGED}/position_ids_replacer.cpp"
_CONVOLUTION = f"{_PAGED}/paged_causal_conv1d_fusion.cpp"
_RECURRENCE = f"{_PAGED}/paged_selective_ssm_fusion.cpp"
_MATCHER = f"{_PAGED}/state_management_pattern.cpp"

_LOOPS = ("Loop", "TensorIterator")

#: Input with the decays in the Loop of a gated delta net, and its rank (batch, heads, tokens).
_GATE, _GATE_RANK = 5, 3


def predict(model: Model, inventory: Inventory) -> tuple[Finding, ...]:
    """Predict the treatment of a model by SDPAToPagedAttention.

    Args:
        model: A model in OpenVINO IR.
        inventory: The caches of the model.

    Returns:
        Findings on attention, on caches, and on parts that would be computed differently.
    """
    if not inventory.stateful:
        return (Finding.of_model(model, "refused", "it has no variables: run make-stateful", _TRANSFORMATION),)
    attention = attention_findings(model, inventory, _require_form, _MATCHER, "refused")
    if not any(True for _ in model.graph.of_op("ScaledDotProductAttention")):
        lacks = Finding.of_model(model, "refused", "it has no ScaledDotProductAttention", _TRANSFORMATION)
        return tuple(finding for finding in attention if not finding.holds) or (lacks,)
    verdicts = {finding.name: finding for finding in attention}
    rest = (*_caches(model.graph, inventory, verdicts), *_numbers(model, inventory, verdicts))
    # Separate matchers find the token masks of hybrids.
    return (
        *dropped_quantizers(model),
        *attention,
        *rest,
        *_single_rows(model.graph),
        *(_left_inputs(model.graph) if inventory.kind == "kv" else ()),
    )


def _require_form(graph: Graph, attention: Attention) -> None:
    require_fused(attention)
    for operand in (attention.key, attention.value):
        assert operand is not None
        chain = trace_operand(graph, operand)
        if graph.producer(chain.index).name != "beam_idx":
            raise MissError(chain.gather, "its indices are not the input beam_idx")
        if chain.converts:
            raise MissError(chain.converts[0], "a Convert is between the variable and the Gather")
        if not chain.read.inputs:
            raise MissError(chain.read, "the variable has no initial value")
        for node in data_uses(graph, chain.concat.outputs[0]):
            if node.op == "Result":
                raise MissError(chain.concat, f"the cache is also the output {node.name}")


def _caches(graph: Graph, inventory: Inventory, attention: dict[str, Finding]) -> Iterator[Finding]:
    readers = {
        name: attention[block.node] for block in inventory.attention for name in (block.key, block.value) if name
    }
    for cache in inventory.of_kind("kv"):
        reader = readers.get(cache.name)
        if reader is None:
            reason = "attention reads it neither as key nor as value, and only keys and values are stored in blocks"
            yield Finding("cache", cache.name, "refused", cache.layer, cache.read, reason, _TRANSFORMATION)
        elif reader.verdict != "plain":
            yield Finding("cache", cache.name, reader.verdict, cache.layer, reader.node, reader.reason, reader.source)
    for cache in inventory.of_kind("linear"):
        entries = {use.node.op: use for use in _entries(graph, cache)}
        loop = next((entries[op] for op in _LOOPS if op in entries), None)
        is_window = bool(entries.keys() & {"GroupConvolution", "Roll"})
        miss = _unknown_convolution(graph, cache) if is_window else _unknown_recurrence(graph, cache, loop)
        if miss is None:
            yield Finding("cache", cache.name, "fused", cache.layer)
        else:
            source = _CONVOLUTION if is_window else _RECURRENCE
            yield Finding.at(miss, "cache", cache.name, "refused", source, cache.layer)


def _entries(graph: Graph, cache: Cache) -> Iterator[Use]:
    """Return the uses of the state, also through the beam Gather and a Concat."""
    reads = graph.reads[cache.read].outputs
    return graph.forward(reads, lambda use: use.node.outputs if use.node.op in {"Gather", "Concat"} else ())


def _unknown_recurrence(graph: Graph, cache: Cache, loop: Use | None) -> Miss | None:
    if loop is None:
        return Miss(graph.reads[cache.read], "neither a convolution nor a loop over the tokens reads it")
    signature = len(loop.node.inputs), loop.port
    if signature not in RECURRENCES:
        inputs = " and ".join(f"{name} (input {port} of {count})" for (count, port), name in RECURRENCES.items())
        reason = f"it is input {loop.port} of {len(loop.node.inputs)}, and only loops of {inputs} are matched"
        return Miss(loop.node, reason)
    gate = loop.node.input(_GATE)
    if RECURRENCES[signature] == "a gated delta net" and gate is not None and gate.rank != _GATE_RANK:
        return Miss(loop.node, "rows of the state have different decays; only one decay for each head is matched")
    return None


def _unknown_convolution(graph: Graph, cache: Cache) -> Miss | None:
    for use in _entries(graph, cache):
        node = use.node
        if node.op == "Concat" and any(user.op == "GroupConvolution" for user in data_uses(graph, node.outputs[0])):
            axis = node.native.get_attributes()["axis"]
            if axis != -1:
                reason = f"it concatenates along axis {axis}; only the attribute -1 is found"
                return Miss(node, reason)
        if node.op == "Roll":
            return Miss(node, "it rolls the window; only a Concat of the window and new columns is found")
        if node.op == "GroupConvolution":
            users = data_uses(graph, node.outputs[0])
            if [user.op for user in users] == ["Add"]:
                users = data_uses(graph, users[0].outputs[0])
            if any(user.op != "Slice" for user in users):
                reason = "no Slice reads its result, as for a window with a column for each weight of the kernel"
                return Miss(node, reason)
            return None
    return None


def _numbers(model: Model, inventory: Inventory, attention: dict[str, Finding]) -> Iterator[Finding]:
    """Yield findings on parts that compute different outputs without mask and with new positions."""
    graph = model.graph
    meanings = {mask.node.index: mask for mask in model.analysis(find_masks)}
    for node in graph.of_op("ScaledDotProductAttention"):
        if node.name not in attention or attention[node.name].verdict != "fused":
            continue
        layer = attention[node.name].layer
        mask, meaning = node.input(3), meanings.get(node.index)
        window = constant_window(graph, mask)
        if meaning is not None and meaning.bias is not ZERO and not (meaning.slopes and is_exposed(graph, mask)):
            reason = "its bias is lost with the mask: only ALiBi in another form is matched"
            yield Finding("attention", node.name, "wrong", layer, node.name, reason, _MATCHER)
        elif window is not None:
            reason = "its constant window is lost with the mask: only windows computed from positions are matched"
            yield Finding("attention", node.name, "wrong", layer, window.name, reason, _MATCHER)
        elif meaning is not None and meaning.chunk is not None:
            reason = f"its mask limits attention to chunks of {meaning.chunk} positions, which is lost with the mask"
            yield Finding("attention", node.name, "wrong", layer, node.name, reason, _MATCHER)
    moved = moved_positions(graph)
    if moved is not None:
        reason = "positions are a Range from 0 plus the past's length; only a Range from it is matched and replaced"
        yield Finding("input", "position_ids", "wrong", node=moved.name, reason=reason, source=_POSITIONS)
        return
    for node in position_counters(model, inventory):
        if node.op != "Range" or fold_scalar(model.graph, node.input(0)) == 0:
            reason = "it counts positions by lengths of the step, which are those of several sequences here"
            yield Finding("input", "position_ids", "wrong", node=node.name, reason=reason, source=_POSITIONS)
            return


def _single_rows(graph: Graph) -> Iterator[Finding]:
    """Yield a finding on the first Reshape to one row, if the batch is fixed."""
    tokens = token_input(graph)
    if tokens is None or fixed_size(tokens, 0) is None:
        return
    for node in graph.of_op("Reshape"):
        shape = fold(graph, node.inputs[1])
        if shape is not None and shape.tolist()[:2] == [1, -1]:
            reason = "it reshapes to one row, and each token becomes a row: export a dynamic batch"
            yield Finding("input", tokens.name, "refused", node=node.name, reason=reason, source=_TRANSFORMATION)
            return


def _left_inputs(graph: Graph) -> Iterator[Finding]:
    """Yield findings on removed inputs that other values than caches and masks depend on."""

    def outputs(use: Use) -> tuple[Value, ...]:
        kept = use.node.op == "ShapeOf" or (use.node.op == "ScaledDotProductAttention" and use.port > 0)
        return () if kept else use.node.outputs

    for name in ("attention_mask", "beam_idx"):
        parameter = graph.parameters.get(name)
        for use in [] if parameter is None else graph.forward([parameter], outputs):
            if use.node.op == "Result" or (use.node.op == "ScaledDotProductAttention" and use.port == 0):
                reason = f"other values than masks and caches depend on {name}, which is removed"
                yield Finding("input", name, "refused", node=use.node.name, reason=reason, source=_TRANSFORMATION)
                break
