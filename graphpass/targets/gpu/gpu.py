"""The GPU plugin's contract: every growing cache becomes a ``kv_cache``, in one of two forms.

The beam form, ``ReadValue -> Gather(beam_idx) -> Concat``, can get a beam table and hold the cache in int8. The reorder
form, ``ReadValue -> ScatterElementsUpdate(dst_idx) -> trim -> Concat``, moves and drops positions. Rules, of openvino:
``kv_cache_fusion.cpp`` and ``indirect_kv_cache.cpp``; 2026.4.1 was measured to fuse a trim only as a StridedSlice that
begins at 1, which later sources mend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.ir.operators import SLICES
from graphpass.targets.chain import PatternBreakError, appending
from graphpass.targets.common import failing_branches
from graphpass.targets.finding import Finding
from graphpass.targets.gpu.gpu_gathers import refused_gathers
from graphpass.targets.gpu.gpu_scaling import scaled_products

if TYPE_CHECKING:
    from graphpass.ir.cache import Cache, Inventory
    from graphpass.ir.graph import Graph, Node
    from graphpass.ir.model import Model

__all__ = ["predict"]

_TRANSFORMATIONS = "src/plugins/intel_gpu/src/plugin/transformations"
_FUSION = f"{_TRANSFORMATIONS}/kv_cache_fusion.cpp"
_INDIRECT = f"{_TRANSFORMATIONS}/indirect_kv_cache.cpp"
_SHAPE = "src/core/include/openvino/core/partial_shape.hpp"

#: Of a trim that begins at 1.
_ONE_VERSION = "by 2026.4.1 alone: later versions do not fuse it and, like all other devices, drop the first position"


class _RefusalError(PatternBreakError):
    """What the matcher asserts on, so that the plugin refuses the model."""


def predict(model: Model, inventory: Inventory) -> tuple[Finding, ...]:
    """What OpenVINO's GPU plugin will do with ``model``, an OpenVINO IR."""
    graph = model.graph
    writes = {node.attributes["variable"]: node for node in graph.of_op("Assign")}
    found = [*failing_branches(model, _SHAPE), *scaled_products(model), *refused_gathers(model)]
    for cache in inventory.caches:
        if cache.kind == "kv":
            found.append(_growing(graph, cache, writes.get(cache.name)))
        elif cache.kind == "linear":
            found.append(_linear(inventory, cache))
    return tuple(found)


def _linear(inventory: Inventory, cache: Cache) -> Finding:
    if inventory.stateful:
        return Finding("cache", cache.name, "taken", cache.layer)
    reason = "the state is an input of the model, not a variable: run make-stateful"
    return Finding("cache", cache.name, "not fused", cache.layer, cache.read, reason, _FUSION)


def _growing(graph: Graph, cache: Cache, write: Node | None) -> Finding:
    if write is None:
        reason = "the past is an input of the model, not a variable: run make-stateful"
        return Finding("cache", cache.name, "not fused", cache.layer, cache.read, reason, _FUSION)
    try:
        form = _form(graph, write)
    except _RefusalError as broken:
        return Finding("cache", cache.name, "refused", cache.layer, broken.node.name, broken.reason, _FUSION)
    except PatternBreakError as broken:
        return Finding("cache", cache.name, "not fused", cache.layer, broken.node.name, broken.reason, _FUSION)
    return Finding("cache", cache.name, "fused", cache.layer, reason=form, source=_INDIRECT)


def _form(graph: Graph, write: Node) -> str:
    """What the cache becomes, for people.

    Raises:
        PatternBreakError: At the first node, from the Assign on, that is not in the pattern.
    """
    concat = _before(graph, write)
    if concat.op == "Convert":
        concat = _before(graph, concat)
    if concat.op != "Concat":
        raise PatternBreakError(concat, f"{concat.op} stands where the Concat of past and new positions is looked for")
    past = _before(graph, concat)
    if past.op in SLICES:
        return _trimmed(graph, past)
    if past.op == "ScatterElementsUpdate":
        if _is_reorder(graph, past):
            reason = "positions are moved, but none are dropped behind it: the plugin's matcher asserts that they are"
            raise _RefusalError(past, reason)
        raise PatternBreakError(past, "it moves positions, but not those of the ReadValue by an i32 input of the model")
    inner = past
    while inner.op == "Convert":
        inner = _before(graph, inner)
    if inner.op == "ReadValue":
        return "has no beam table, so it cannot hold the cache in int8 either"
    if inner.op == "Concat" or inner.op not in {"Gather", "Parameter"}:
        raise PatternBreakError(inner, f"{inner.op} stands between the variable and the Concat")
    _, gather, _ = appending(graph, concat) if past.op == "Gather" else (None, inner, ())
    index = gather.inputs[1]
    assert index is not None
    if graph.producer(index).op != "Parameter" or index.element_type != "i32":
        raise PatternBreakError(gather, "its indices are not an i32 input of the model")
    return "can have a beam table"


def _trimmed(graph: Graph, trim: Node) -> str:
    if trim.op != "StridedSlice":
        reason = (
            "it drops positions from 0 on, which 2026.4.1 does not fuse: its matcher looks for a StridedSlice that "
            "begins at 1 (a bug; later versions look for 0 and fuse this; for 2026.4.1 there is trim=begin-one)"
        )
        raise PatternBreakError(trim, reason)
    begin = graph.constant(trim.inputs[1])
    if begin is None or not (begin == 1).all():
        raise PatternBreakError(
            trim, "2026.4.1 fuses a StridedSlice only where it begins at 1 (a bug; later versions: 0)"
        )
    source = _before(graph, trim)
    if source.op == "ScatterElementsUpdate":
        if not _is_reorder(graph, source):
            raise PatternBreakError(
                source, "it moves positions, but not those of the ReadValue by an i32 input of the model"
            )
        return f"moves and drops positions in place, {_ONE_VERSION}"
    return f"drops positions in place, {_ONE_VERSION}"


def _is_reorder(graph: Graph, scatter: Node) -> bool:
    """Whether positions of a ReadValue go to where an i32 input says, taken from it by a Gather."""
    target, index, update = (graph.producer(value) for value in scatter.inputs[:3] if value is not None)
    if target.op == "Convert":
        target = _before(graph, target)
    direct = index.op == "Parameter" and index.outputs[0].element_type == "i32"
    return target.op == "ReadValue" and direct and update.op == "Gather"


def _before(graph: Graph, node: Node) -> Node:
    value = node.inputs[0]
    assert value is not None
    return graph.producer(value)
