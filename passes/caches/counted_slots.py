"""Replace caches that are written at counted slots by growing ones; see `grow-caches`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphpass.analysis.attention.effective_mask import attention_mask
from graphpass.analysis.attention.find import find_attention
from graphpass.analysis.attention.mask import AttentionMask, Scope, plain_mask
from graphpass.analysis.attention.mask_parts import described
from graphpass.analysis.attention.operands import Operand, attention_operands
from graphpass.analysis.attention.types import Attention
from graphpass.analysis.caches.counters import counted, counter_candidates, find_counters
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.pairs import Pair
from graphpass.analysis.caches.step_lengths import known_lengths
from graphpass.analysis.caches.updates import find_updates
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Elements
from graphpass.analysis.symbolic.expressions import ZERO, Expr
from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.analysis.symbolic.step import LENGTH, PAST, TOTAL
from graphpass.analysis.symbolic.table import TABLE
from graphpass.ir.cache import Cache
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.inputs import token_input
from graphpass.ir.miss import Miss
from graphpass.ir.model import Model
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.types import Dimension
from graphpass.ir.writer import Handle, Operand as Source
from graphpass.passes.attention.step_builder import StepBuilder
from graphpass.passes.masks.window_mask import Window, WindowWriter, masks_of

#: Slots that are free after the step: the capacity is at least the length of past and new tokens together.
_FREE = ex.length("free")

_SLOT = ex.index("slot", LENGTH)


@dataclass(frozen=True)
class SlotCache:
    """A cache of fixed capacity, and the operator that writes new entries into it.

    Attributes:
        cache: The cache.
        scatter: The operator.
        order: Axes of the cache in the order of the operator's output.
    """

    cache: Cache
    scatter: Node
    order: tuple[int, ...]

    @property
    def axis(self) -> int:
        """Return the axis of slots in the operator's output."""
        assert self.cache.axes.sequence is not None
        return self.order.index(self.cache.axes.sequence)


@dataclass(frozen=True)
class CountedSlots:
    """All caches of a model, with the attention that reads them.

    Attributes:
        caches: The caches.
        windows: The masks of each attention, with the effective mask over positions instead of slots.
        operands: Keys and values that attention reads from the caches.
        counters: Inputs with the number of positions before the step, and the outputs that return it after.
    """

    caches: tuple[SlotCache, ...]
    windows: tuple[Window, ...]
    operands: tuple[Operand, ...]
    counters: dict[str, tuple[Node, ...]]


def find_counted_slots(model: Model) -> CountedSlots | None:
    """Return the caches that are written at counted slots, if all are.

    Args:
        model: Any model; it is not modified.

    Returns:
        The caches and the attention that reads them; ``None`` if another cache or mask is present.
    """
    graph = model.graph
    candidates = counter_candidates(graph)
    inventory = analyze_caches(model) if candidates and token_input(graph) is not None else None
    if inventory is None or inventory.stateful or not inventory.caches:
        return None
    capacities = {cache.capacity for cache in inventory.caches}
    capacity = capacities.pop() if len(capacities) == 1 else None
    if capacity is None or any(cache.kind != "kv" for cache in inventory.caches):
        return None
    elements = _elements(model, capacity)
    counters = find_counters(elements)
    starts = [counted(elements, graph.parameters[name]) for name in counters]
    caches = [_slot_cache(graph, elements, cache, starts) for cache in inventory.caches]
    masks = [_over_positions(elements, attention, starts) for attention in model.analysis(find_attention)]
    found, windows = [each for each in caches if each], [mask for mask in masks if mask]
    if not counters or len(found) < len(caches) or len(windows) < len(masks):
        return None
    return CountedSlots(tuple(found), tuple(windows), model.analysis(attention_operands), counters)


def _elements(model: Model, capacity: int) -> Elements:
    """Return elements under the condition that past and new tokens fit into ``capacity``."""
    lengths, bits = known_lengths(model, analyze_caches(model).caches)
    total = ex.subtract(ex.number(capacity), _FREE)
    fitting = {PAST: ex.subtract(total, LENGTH)}
    known = {dimension: ex.substitute(size, fitting) for dimension, size in lengths.items()}
    return Elements(model.graph, model.analysis(infer_sizes), TABLE, known, bits)


def _slot_cache(graph: Graph, elements: Elements, cache: Cache, starts: list[Expr]) -> SlotCache | None:
    if cache.write is None or cache.axes.sequence is None:
        return None
    read, write = graph.reads[cache.read], graph.writes[cache.write]
    updates = find_updates(graph, Pair(read.outputs[0], write.source(), read, write))
    if len(updates) != 1 or updates[0].appends or updates[0].cut_before or updates[0].cut_after:
        return None
    node = updates[0].node
    order = _order(graph, node.source(), read.outputs[0])
    found = None if order is None else SlotCache(cache, node, order)
    rank = node.source(1).rank or 0
    if found is None:
        return None
    if node.op == "ScatterNDUpdate" and found.axis == 0:
        place: tuple[Expr, ...] = (_SLOT, ZERO)
    elif node.op == "ScatterElementsUpdate" and rank == len(found.order):
        place = tuple(_SLOT if axis == found.axis else ex.index(f"axis {axis}", ex.ONE) for axis in range(rank))
    else:
        return None
    slot = elements.of(node.source(1), place) if rank == len(place) else None
    return found if slot in [ex.add(start, _SLOT) for start in starts] else None


def _order(graph: Graph, value: Value, past: Value) -> tuple[int, ...] | None:
    """Return the axes of ``past`` in the order of ``value``; ``None`` unless Transposes relate them."""
    order = tuple(range(past.rank or 0))
    while value != past:
        node = graph.producer(value)
        if node.op != "Transpose":
            return None
        order = tuple(node.attributes["order"][axis] for axis in order)
        value = node.source()
    return order


def _over_positions(elements: Elements, attention: Attention, starts: list[Expr]) -> Window | None:
    """Return the masks of an attention; ``None`` unless causal, a window or padding."""
    mask = attention_mask(elements, attention)
    if mask.misses:
        return None
    key = ex.index("k", TOTAL)
    scope = Scope(mask.scope.row, mask.scope.head, mask.scope.query, key)
    meant: dict[Expr, Expr] = dict.fromkeys(starts, PAST)
    meant |= {mask.scope.key: key, _FREE: ex.subtract(_capacity(mask), TOTAL)}
    visible, bias = (ex.substitute(part, meant) for part in (mask.visible, mask.bias))
    over = described(elements, attention.node, scope, visible, bias)
    return None if isinstance(plain_mask(over), Miss) else masks_of(elements.graph, attention, over)


def _capacity(mask: AttentionMask) -> Expr:
    size = mask.scope.key.args[1]
    assert isinstance(size, Expr)
    return size


def grow(model: Model, rewriter: Rewriter, slots: CountedSlots) -> None:
    """Replace caches of fixed capacity by growing ones.

    Args:
        model: The model.
        rewriter: Its rewriter.
        slots: The result of `find_counted_slots`.
    """
    graph = model.graph
    step = StepBuilder(model, rewriter)
    for each in slots.caches:
        _append(model, rewriter, each)
    positions = (step.keys, step.queries)
    masks = WindowWriter(rewriter, positions, positions, "LogicalAnd")
    for window in slots.windows:
        masks.replace(window)
    for node, axis in dict.fromkeys(_reshapes(graph, slots)):
        _open(rewriter, node, axis, step.of("total"))
    for name, results in slots.counters.items():
        counter = graph.parameters[name]
        past = rewriter.under(name).op("Reshape", step.of("past"), list(counter.shape or ()))
        rewriter.redirect_uses(counter, rewriter.under(name).convert(past, counter.element_type))
        rewriter.drop(results)


def _append(model: Model, rewriter: Rewriter, slots: SlotCache) -> None:
    """Append new entries to a growing cache in place of writing them."""
    graph = model.graph
    cache, node, write = slots.cache, slots.scatter, rewriter.under(slots.scatter.name)
    read, result = graph.reads[cache.read], graph.writes[str(cache.write)]
    past, axis = read.outputs[0], cache.axes.sequence or 0
    shape: list[Dimension] = ["past_length" if place == axis else size for place, size in enumerate(past.shape or ())]
    rewriter.drop([read, result])
    grown = rewriter.input(read.name, past.element_type, shape)
    rewriter.replace(past, grown)
    new: Source = _entries(model, node.source(2))
    inverse = [slots.order.index(place) for place in range(len(slots.order))]
    if inverse != sorted(inverse):
        new = write.op("Transpose", new, order=inverse)
    joined = write.op("Concat", grown, new, axis=axis)
    laid_out = joined if inverse == sorted(inverse) else write.op("Transpose", joined, order=list(slots.order))
    rewriter.replace(node.outputs[0], laid_out)
    shape = ["total_length" if place == axis else size for place, size in enumerate(past.shape or ())]
    rewriter.output(result.name, joined, past.element_type, shape)


def _entries(model: Model, updates: Value) -> Value:
    """Return the new entries of a scatter before a Broadcast that repeats none of them."""
    node, sizes = model.graph.producer(updates), model.analysis(infer_sizes)
    is_same = node.op == "Broadcast" and sizes.shape(node.source()) == sizes.shape(updates) is not None
    return node.source() if is_same else updates


def _reshapes(graph: Graph, slots: CountedSlots) -> Iterator[tuple[Node, int]]:
    """Yield Broadcasts and Reshapes of keys and values, with the axis of slots."""
    for operand in slots.operands:
        for value, labels in operand.places:
            node = graph.producer(value)
            if node.op in {"Broadcast", "Reshape"} and "sequence" in labels:
                yield node, labels.index("sequence")


def _open(rewriter: Rewriter, node: Node, axis: int, total: Handle) -> None:
    """Set an element of the target shape to the number of positions."""
    write, target = rewriter.under(node.name), node.source(1)
    rank = node.outputs[0].rank or 0
    total = write.convert(total, target.element_type)
    parts: list[Source] = [total]
    if axis:
        parts.insert(0, write.slice(target, 0, axis, axis=0))
    if axis < rank - 1:
        parts.append(write.slice(target, axis + 1, rank, axis=0))
    rewriter.set_input(node, 1, write.op("Concat", *parts, axis=0, label="shape"))
