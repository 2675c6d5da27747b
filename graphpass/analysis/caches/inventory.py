"""Take the cache inventory: all tensors that a model carries, with kind, role and axes, by dataflow alone."""

from __future__ import annotations

from dataclasses import replace

from graphpass.analysis.attention.operands import attention_operands
from graphpass.analysis.attention.reads import Read, attention_reads
from graphpass.analysis.caches.blocks import attention_blocks, beyond_reach, with_windows
from graphpass.analysis.caches.classify import Case, Classification, classify, read_only
from graphpass.analysis.caches.declared import apply_declarations
from graphpass.analysis.caches.layers import regions
from graphpass.analysis.caches.pairs import Pair, find_pairs, history_of, is_stateful, may_be_past
from graphpass.analysis.caches.unpaired import unpaired_ports
from graphpass.ir.bodies import inlined
from graphpass.ir.cache import Cache, Inventory
from graphpass.ir.model import Model

__all__ = ["analyze_caches"]


def analyze_caches(model: Model) -> Inventory:
    """Return all caches of ``model``, and the attention that reads them.

    Args:
        model: ONNX or OpenVINO, stateless or stateful. Kept until the model is edited.

    Returns:
        The inventory; the evidence of a cache of kind ``unknown`` ends with the missing fact.

    Raises:
        UsageError: GP217 the model declares a cache (`Model.declare`) that it does not carry; GP219 one that the graph
            contradicts.
        ReadError: GP109, the note with the declarations is damaged.
    """
    return model.analysis(_analyze)


def _analyze(model: Model) -> Inventory:
    whole = inlined(model)
    graph = whole.graph
    reads = whole.analysis(attention_reads)
    operands = whole.analysis(attention_operands)
    pairs = whole.analysis(find_pairs)
    kinds = {pair: _classify(whole, pair, reads.get(pair.read.index, ())) for pair in pairs}
    found = list(apply_declarations(whole, model.declarations, kinds).values())
    paired = {pair.read.index for pair in pairs}
    for node in graph.of_op("Parameter"):
        if node.index not in paired and may_be_past(past := node.outputs[0]):
            entry = read_only(Case(whole, Pair(past, None, node, None), reads.get(node.index, ())))
            found += [entry] if entry is not None else []
    caches = _with_layers(found, _regions(whole, kinds))
    linear = {cache.read for cache in caches if cache.kind == "linear"}
    readers = {entry.cache.read: entry.readers for entry in found}
    blocks = attention_blocks(whole, caches, readers, pairs)
    inputs, outputs = unpaired_ports(graph, pairs, linear, operands)
    return Inventory(
        stateful=is_stateful(whole),
        caches=with_windows(caches, blocks),
        attention=beyond_reach(blocks, model) if whole is not model else blocks,
        unpaired_inputs=inputs,
        unpaired_outputs=outputs,
    )


def _classify(model: Model, pair: Pair, reads: tuple[Read, ...]) -> Classification:
    found = classify(Case(model, pair, reads))
    state = history_of(model.graph, pair)
    if state is None:
        return found
    evidence = (f"it holds earlier states of {state.attributes['variable']}, and nothing new",)
    return replace(found, cache=replace(found.cache, kind="other", role="unknown", evidence=evidence))


def _regions(model: Model, kinds: dict[Pair, Classification]) -> dict[str, int | None]:
    """Return the place of the residual stream after which each linear cache is updated, by name."""
    linear = {pair: entry.cache for pair, entry in kinds.items() if entry.cache.kind == "linear"}
    known = regions(model) if len(linear) > 1 else {}
    return {cache.name: known.get(pair.present.node) for pair, cache in linear.items() if pair.present is not None}


def _with_layers(found: list[Classification], places: dict[str, int | None]) -> tuple[Cache, ...]:
    """Number caches by layer, in order: caches of one attention share it, and so do a window and a recurrent state.

    All that a layer updates lies deeper in the graph than the layer before. Between a window and a recurrent state of
    two layers there is also the residual stream.
    """
    order = {"key": 0, "value": 1, "conv": 0, "recurrent": 1, "cross_key": 2, "cross_value": 3}
    layer, layers = -1, []
    previous: Classification | None = None
    seen: set[tuple[str, str]] = set()
    for entry in sorted(found, key=lambda entry: (entry.depth, order.get(entry.cache.role, 9), entry.cache.name)):
        if entry.cache.kind in {"other", "unknown"} or entry.spans_layers:
            layers.append(entry.cache)
            continue
        identity = (entry.cache.kind, entry.cache.role)
        joins = (
            previous is not None
            and _same_layer(previous, entry, repeats=identity in seen)
            and places.get(previous.cache.name) == places.get(entry.cache.name)
        )
        if not joins:
            layer += 1
            seen = set()
        seen.add(identity)
        layers.append(replace(entry.cache, layer=layer))
        previous = entry
    return tuple(
        sorted(layers, key=lambda cache: (cache.layer is None, cache.layer or 0, order.get(cache.role, 9), cache.name))
    )


def _same_layer(first: Classification, second: Classification, *, repeats: bool) -> bool:
    if first.reader is not None or second.reader is not None:
        if first.reader == second.reader:
            return True
        return not repeats and first.cache.kind == "kv" and second.cache.kind == "cross"
    return not repeats and first.cache.kind == second.cache.kind
