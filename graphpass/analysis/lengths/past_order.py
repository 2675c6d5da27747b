"""Dependence of a model on the slots of past positions in its caches.

Attention is a sum over keys, so it depends neither on their order nor on masked keys between them. A model may depend
on slots by index or number: windows that compare indices, ALiBi, positions from the length of the cache. In the graph,
these compute data from the length of a tensor with an entry for each past position, or from a range up to it; a length
that is used only in shapes does not matter. Unknown operators are treated as order-dependent.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Literal, TypeAlias

from graphpass.analysis.attention.find import Scores, find_attention, read_scores
from graphpass.analysis.attention.mask import AttentionMask
from graphpass.analysis.attention.types import Attention
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.masks import find_elements, find_masks
from graphpass.analysis.caches.step_tokens import weighs_new_tokens
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.bounds import is_natural
from graphpass.analysis.symbolic.elements import Elements, UnknownError
from graphpass.analysis.symbolic.expressions import ONE, ZERO, Expr
from graphpass.analysis.symbolic.folding import fold, fold_scalar, starts_at_first
from graphpass.analysis.symbolic.step import BATCH, LENGTH, PAST
from graphpass.ir.bodies import inlined
from graphpass.ir.cache import Inventory
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.model import Model
from graphpass.ir.operators import (
    ARITHMETIC,
    EXTREMA,
    KEEPS_ORDER,
    LAYOUT,
    QUANTIZERS,
    SHAPE_READERS,
    SLICES,
    SOURCES,
    SPLITS,
)
from graphpass.ir.values import INTEGERS, fixed_size

#: Operators on a cache that treat entries separately, before attention or after new entries are appended.
_EACH_ENTRY = LAYOUT | SPLITS | ARITHMETIC | QUANTIZERS | SHAPE_READERS | {
    "Assign", "Concat", "Gather", "MatMul", "Power", "Result", "Sqrt"
}  # fmt: skip

#: Operators on scores inside attention.
_INSIDE = ARITHMETIC | EXTREMA | KEEPS_ORDER | QUANTIZERS | SLICES | SPLITS | {
    "Clamp", "IsNaN", "MatMul", "ReduceMax", "Select", "Softmax", "Tanh"
}  # fmt: skip

#: Operators that rearrange their first input as the other inputs specify.
_FIRST_ONLY = LAYOUT | SPLITS | {"CumSum", "Pad", "Trilu"}

#: Maximum number of elements of an integer tensor that may be a shape.
_FEW = 8

PastOrder: TypeAlias = Literal["any", "order", "index"]
"""``any``: entries may be in any slots, with masked slots between them. ``order``: entries must be in order, because
the mask counts visible entries. ``index``: entry i must be in slot i."""


def past_order(model: Model) -> PastOrder:
    """Return the order of past positions that ``model`` requires in its growing caches."""
    return model.analysis(_past_order)


def _past_order(model: Model) -> PastOrder:
    inventory = analyze_caches(model)
    if inventory.kind == "linear":
        return "any"
    whole = inlined(model)
    graph = whole.graph
    attentions = _Attentions(graph, whole.analysis(find_attention))
    if attentions.unknown or not _are_plain(inventory):
        return "index"
    grown = {cache.read for cache in inventory.of_kind("kv")}
    caches = {node.index for name, node in graph.reads.items() if name in grown}
    masks = {node.index for node in graph.of_op("Parameter") if node.name == "attention_mask"}
    # A mask that multiplies hidden states covers only the new tokens.
    new = {node.index for node in weighs_new_tokens(graph)}
    elements = whole.analysis(find_elements)
    entries = reached(elements, caches, attentions.results)
    lengths = reached(elements, caches | masks, attentions.results | new)
    if not _keeps_entries_apart(graph, entries, attentions) or _counts_past(elements, lengths, entries, attentions):
        return "index"
    orders = {order_of_mask(mask) for mask in whole.analysis(find_masks)}
    return "index" if "index" in orders else "order" if "order" in orders else "any"


def order_of_mask(mask: AttentionMask) -> PastOrder:
    """Return the order of past entries that a mask requires."""
    hides_entries = any(
        part.op == "read" and part.args[0] == "attention_mask" for part in ex.walk(mask.visible, mask.bias)
    )
    if mask.misses or mask.has_lengths or not hides_entries:
        return "index"
    return order_of_numbers(mask, mask.visible, mask.bias)


def order_of_numbers(mask: AttentionMask, *numbers: Expr) -> PastOrder:
    """Return the order of past entries that expressions of a mask's indices require."""
    # Other lengths, such as that of a mask for drafts, count new tokens.
    lengths = {part for part in ex.walk(*numbers) if part.op == "length"}
    sizes = dict.fromkeys(lengths - {BATCH, PAST, LENGTH}, LENGTH)
    old, new = ex.index("past key", PAST), ex.add(PAST, ex.index("new key", LENGTH))
    counts = False
    for key in (old, new):
        for number in numbers:
            kept = ex.substitute(number, {**sizes, mask.scope.key: key})
            of_entry = {part: _entry(part) for part in ex.walk(kept) if _is_of_entry(part, key)}
            counts |= any(part.op == "running_sum" and part.args[-1] is key for part in of_entry)
            if not {old, PAST}.isdisjoint(ex.walk(ex.substitute(kept, of_entry))):
                return "index"
    return "order" if counts else "any"


def _is_of_entry(part: Expr, key: Expr) -> bool:
    """Return whether an expression is a property of an entry, or counts visible entries."""
    if part.op == "read":
        return part.sort == "bool" and part.args[-1] is key
    if part.op != "running_sum":
        return False
    body, bound, upper = part.args
    shown = {read: _entry(read) for read in ex.walk(body) if read.op == "read" and read.args[-1] is bound}
    counts_shown = not ex.contains([ex.substitute(body, shown)], bound)
    return counts_shown and (upper is key or is_natural(ex.subtract(upper, PAST)))


def _entry(part: Expr) -> Expr:
    return ex.TRUE if part.sort == "bool" else ex.ZERO


class _Attentions:
    def __init__(self, graph: Graph, attentions: Iterable[Attention]) -> None:
        self.masks: list[Value] = []
        self.results: set[int] = set()
        self.inside: set[int] = set()
        self.unknown = False
        for attention in attentions:
            node = attention.node
            if node.op == "ScaledDotProductAttention":
                self.masks += (mask for mask in node.inputs[3:4] if mask is not None)
                self.results.add(node.index)
                self.unknown |= bool(node.attributes["causal"])
                continue
            scores = read_scores(graph, node) if node.op == "Softmax" else None
            inside = _until_product(graph, node) if isinstance(scores, Scores) else None
            if not isinstance(scores, Scores) or inside is None:
                self.unknown = True
                continue
            self.masks += (mask.value for mask in scores.masks)
            self.inside |= inside
            self.results.add(max(inside))


def _until_product(graph: Graph, softmax: Node) -> set[int] | None:
    way = _INSIDE - {"MatMul"}
    uses = list(graph.forward(softmax.outputs, lambda use: use.node.outputs if use.node.op in way else ()))
    products = {use.node.index for use in uses if use.node.op == "MatMul"}
    if len(products) != 1 or not all(use.node.op in _INSIDE for use in uses):
        return None
    return {softmax.index, *(use.node.index for use in uses)}


def _are_plain(inventory: Inventory) -> bool:
    return all(
        block.key is not None and block.value is not None and block.window_in != "state"
        for block in inventory.attention
    )


def _keeps_entries_apart(graph: Graph, entries: set[int], attentions: _Attentions) -> bool:
    """Return whether only attention combines or selects entries of a cache."""
    shapes = _shapes(graph, entries)
    for index in entries - shapes:
        node = graph.nodes[index]
        if node.op in SOURCES or index in attentions.inside or _is_before_softmax(graph, node, attentions):
            continue
        if node.op in SLICES:
            if not (_slices_last_axis(node) or starts_at_first(graph, node)):
                return False
        elif node.op not in _EACH_ENTRY:
            return False
    return True


def _shapes(graph: Graph, entries: set[int]) -> set[int]:
    shapes: set[int] = set()
    for index in sorted(entries):
        node = graph.nodes[index]
        sources = [value.node for value in node.sources if value.node in entries]
        if sources and all(source in shapes or graph.nodes[source].op == "ShapeOf" for source in sources):
            shapes.add(index)
    return shapes


def _is_before_softmax(graph: Graph, node: Node, attentions: _Attentions) -> bool:
    allowed = _INSIDE | {"Concat"}

    def goes_on(node: Node) -> bool:
        is_used = any(graph.uses(output) for output in node.outputs)
        return node.op in allowed and (is_used or node.index in attentions.inside)

    uses = graph.forward(node.outputs, lambda use: () if use.node.index in attentions.inside else use.node.outputs)
    return goes_on(node) and all(goes_on(use.node) for use in uses)


def _slices_last_axis(node: Node) -> bool:
    axes = node.attributes.get("axes")
    return node.op == "Slice" and node.outputs[0].rank == 4 and axes is not None and tuple(axes) in {(3,), (-1,)}


def _grow(graph: Graph, entries: set[int]) -> bool:
    """Return whether caches grow: their axis of positions does not have a fixed size."""
    shapes = [read.outputs[0].shape for read in graph.of_op(*SOURCES) if read.index in entries]
    return all(shape is None or any(not isinstance(size, int) for size in shape[1:]) for shape in shapes)


def _slices_channels(graph: Graph, node: Node) -> bool:
    """Return whether a slice has constant starts and cuts only axes of fixed size."""
    axes = node.attributes.get("axes") or ()
    is_fixed = len(axes) > 0 and all(fixed_size(node.source(), axis) is not None for axis in axes)
    return is_fixed and fold(graph, node.input(1)) is not None


def _counts_past(elements: Elements, lengths: set[int], entries: set[int], attentions: _Attentions) -> bool:
    """Return whether data other than masks and shapes depends on the number of entries."""
    graph = elements.graph
    masks, grows = set(attentions.masks), _grow(graph, entries)

    def numbers(node: Node) -> Iterable[Value | None]:
        if node.op in SHAPE_READERS | {"ConstantOfShape"}:
            return ()
        if _sizes_new_tokens(elements, node):
            return ()
        count = 3 if node.op == "ScaledDotProductAttention" else 1 if node.op in SLICES | _FIRST_ONLY else None
        return (value for value in node.inputs[:count] if value not in masks)

    results = [value for node in graph.of_op("Result", "Assign") for value in node.inputs]
    for node in graph.backward((value for value in results if value not in masks), numbers):
        if node.op in SHAPE_READERS and node.source().node in lengths:
            return True
        if node.op == "Parameter" and node.name == "cache_position":
            return True
        if node.op not in SLICES or (grows and _slices_channels(graph, node)):
            continue
        if not _slices_alike(graph, node, lengths, entries, attentions):
            return True
    return False


def _slices_alike(graph: Graph, node: Node, lengths: set[int], entries: set[int], attentions: _Attentions) -> bool:
    """Return whether a slice selects the same elements for any number of masked entries.

    A tensor with an element for each position may be sliced to the new positions, which are the last; for any other
    tensor, the start must not depend on a length.
    """
    start = node.input(1)
    if node.source().node not in lengths:
        return start is None or not _uses_length(graph, start, lengths, attentions.results)
    if node.source().node in entries:
        return _slices_last_axis(node) or starts_at_first(graph, node)
    number = fold_scalar(graph, start)
    if number is not None:
        return number in {0, -1}
    steps = graph.backward([start], lambda node: () if node.op in SHAPE_READERS | {"Gather"} else node.inputs)
    added = [value for step in steps if step.op in {"Add", "Subtract"} for value in step.inputs]
    return not any(fold_scalar(graph, value) for value in added)


def _uses_length(graph: Graph, value: Value, lengths: set[int], stops: set[int]) -> bool:
    """Return whether ``value`` depends on sizes of ``lengths``, on paths without ``stops``."""
    upstream = graph.backward(
        [value], lambda node: () if node.op in SHAPE_READERS or node.index in stops else node.inputs
    )
    return any(node.op in SHAPE_READERS and node.source().node in lengths for node in upstream)


def reached(elements: Elements, sources: set[int], stops: set[int]) -> set[int]:
    """Return ``sources`` and the nodes downstream of them, by index.

    Args:
        elements: Elements of the graph.
        sources: Indices of nodes.
        stops: Indices of nodes at which the search ends; excluded from the result.

    Returns:
        The nodes, without those that depend only on the batch and the new tokens.
    """
    graph, indices = elements.graph, set(sources)
    for node in graph.nodes:
        follows = any(value.node in indices and value.node not in stops for value in node.sources)
        if follows and not (_sizes_new_tokens(elements, node) or _keeps_new(elements, node)):
            indices.add(node.index)
    return indices - stops


def _sizes_new_tokens(elements: Elements, node: Node) -> bool:
    """Return whether all outputs depend only on batch size and number of new tokens."""
    return len(node.outputs) > 0 and all(_is_of_new_tokens(elements, value) for value in node.outputs)


def _is_of_new_tokens(elements: Elements, value: Value) -> bool:
    shape = value.shape
    if shape is None or len(shape) > 1 or value.element_type not in INTEGERS:
        return False
    places = [range(size) if isinstance(size, int) and size <= _FEW else () for size in shape]
    if not all(places):
        return False
    numbers = [elements.of(value, tuple(map(ex.number, place))) for place in itertools.product(*places)]
    return all(
        part.op not in {"opaque", "read"} and (part.op != "length" or part in {BATCH, LENGTH})
        for part in ex.walk(*numbers)
    )


def _keeps_new(elements: Elements, node: Node) -> bool:
    """Return whether ``node`` is a Range over new tokens or a slice of their entries."""
    if node.op not in SLICES | {"Range"}:
        return False
    result = node.outputs[0]
    try:
        if node.op == "Range":
            return elements.shape(result) == (LENGTH,)
        before, after, starts = (elements.shape(value) for value in (node.source(), result, node.source(1)))
    except UnknownError:
        return False
    changed = [(old, new) for old, new in zip(before, after, strict=False) if old is not new]
    if len(changed) != 1 or changed[0][1] is not LENGTH or starts not in {(), (ONE,)}:
        return False
    start = elements.of(node.source(1), (ZERO,) * len(starts))
    return start in {ex.negative(LENGTH), ex.subtract(changed[0][0], LENGTH)}
