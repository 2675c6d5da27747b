"""Counts places in the cache as NPUW does, so that it knows the windows that compare them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.lengths.proven import find_lengths
from graphpass.analysis.masks.comparisons import compared_positions
from graphpass.analysis.shapes.linear_size import Size
from graphpass.dialects.openvino.rewrite import integers, named, output_of, redirect, token_input
from graphpass.ir.constants import fold_scalar
from graphpass.ir.operators import KEEPS_ORDER
from graphpass.targets.npu.values import past_of
from graphpass.targets.npu.windows import are_known_places

if TYPE_CHECKING:
    from collections.abc import Iterable

    import openvino

    from graphpass.analysis.masks.window import WindowMask
    from graphpass.analysis.shapes.sizes import Sizes
    from graphpass.dialects.openvino.model import OpenVINOModel
    from graphpass.ir.graph import Graph, Value

__all__ = ["count_places", "write_places"]


def write_places(model: OpenVINOModel) -> tuple[openvino.Node, openvino.Node] | None:
    """Places of keys ``[1, 1, 1, sequence]`` and queries ``[1, 1, length, 1]`` in the cache, as NPUW knows them.

    Its phi3_sliding_mask.cpp wants ranges from and to the length that a Gather takes of a cache, and an Unsqueeze for
    each axis.
    """
    from openvino import opset13

    measured = _measured(model)
    if measured is None:
        return None
    cache, sequence_axis, ids = measured
    graph = model.graph
    zero, one = integers(0, "window/0"), integers(1, "window/1")
    axis = integers(sequence_axis, "window/sequence_axis")
    past = named(opset13.gather(opset13.shape_of(output_of(graph, cache), "i64"), axis, zero), "window/past")
    shape = opset13.shape_of(output_of(graph, ids), "i64")
    whole = named(opset13.add(past, opset13.gather(shape, one, zero)), "window/whole")
    keys = opset13.range(zero, whole, one, "i64")
    queries = opset13.range(past, whole, one, "i64")
    for key_axis, query_axis in ((0, 0), (1, 1), (2, 3)):
        keys = opset13.unsqueeze(keys, integers(key_axis, f"window/keys_axis_{key_axis}"))
        queries = opset13.unsqueeze(queries, integers(query_axis, f"window/queries_axis_{query_axis}"))
    return named(keys, "window/keys"), named(queries, "window/queries")


def count_places(model: OpenVINOModel, masks: Iterable[WindowMask]) -> int:
    """Let ``masks`` compare places that NPUW knows, where they compare the same places; how many values changed.

    Args:
        model: What holds the masks, of which no more may be asked behind that.
        masks: Those that may be changed, in all their conditions.
    """
    graph = model.graph
    compared = dict.fromkeys(
        places for mask in masks for places in _compared(graph, mask) if not are_known_places(graph, *places)
    )
    measured = _measured(model) if compared else None
    if measured is None:
        return 0
    sizes = find_lengths(model)
    cache, sequence_axis, ids = measured
    shapes = sizes.shape(cache), sizes.shape(ids)
    if shapes[0] is None or shapes[1] is None:
        return 0
    past = shapes[0][sequence_axis]
    whole = past + shapes[1][1]
    keys = {keys for keys, _ in compared if _is_counted(graph, sizes, keys, Size(), whole)}
    queries = {queries for _, queries in compared if _is_counted(graph, sizes, queries, past, whole)}
    both = [places for places in compared if places[0] in keys and places[1] in queries]
    written = write_places(model) if both else None
    if written is None:
        return 0
    old = dict.fromkeys((value, new) for places in both for value, new in zip(places, written, strict=True))
    for value, new in old:
        redirect(output_of(graph, value), new.output(0))
    model.ov_model.validate_nodes_and_infer_types()
    model.mark_edited()
    return len(old)


def _measured(model: OpenVINOModel) -> tuple[Value, int, Value] | None:
    """The past of a cache, its axis of positions, and the input of tokens: what tells how many places there are."""
    caches = analyze_caches(model).of_kind("kv")
    ids = token_input(model.ov_model)
    if not caches or ids is None:
        return None
    read = next(node for node in model.graph.of_op("Parameter", "ReadValue") if node.name == caches[0].read)
    tokens = next(node for node in model.graph.of_op("Parameter") if node.name == ids)
    return past_of(model.graph, read), int(caches[0].axes.sequence or 0), tokens.outputs[0]


def _compared(graph: Graph, mask: WindowMask) -> Iterable[tuple[Value, Value]]:
    """The places of keys and queries that conditions of ``mask`` compare."""
    yield mask.keys, mask.queries
    for other in mask.others:
        found = compared_positions(graph, other.value, holds=other.holds)
        if found is not None:
            yield found.keys, found.queries


def _is_counted(graph: Graph, sizes: Sizes, places: Value, start: Size, stop: Size) -> bool:
    """Whether ``places`` of rank 4 are the numbers from ``start`` to ``stop``, in order."""
    if places.rank != 4 or places.element_type != "i64":
        return False
    moved = Size()
    value: Value | None = places
    while value is not None:
        node = graph.producer(value)
        if node.op == "Range":
            bounds = [sizes.content(node.inputs[port]) for port in (0, 1)]
            ends = [bound[0] + moved for bound in bounds if bound is not None and len(bound) == 1]
            return ends == [start, stop] and fold_scalar(graph, node.inputs[2]) == 1
        if node.op == "Add":
            added = [sizes.content(node.inputs[port]) for port in (0, 1)]
            numbers = [
                (port, number[0]) for port, number in enumerate(added) if number is not None and len(number) == 1
            ]
            if len(numbers) != 1:
                return False
            ((port, number),) = numbers
            moved += number
            value = node.inputs[1 - port]
        elif node.op in KEEPS_ORDER:
            value = node.inputs[0]
        else:
            return False
    return False
