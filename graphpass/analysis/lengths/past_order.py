"""What a model sees of where past positions lie in its caches.

Attention adds up over its keys, so it does not care in which order they lie, or whether some that the mask hides lie
between them. What may care is what counts entries: a window that compares their indices, ALiBi, positions that are
taken from the cache's length. All of that shows in the graph as a length of something that holds past entries, or a
range up to one, on its way to numbers; on its way to shapes it does no harm.

Whatever is not known to do no harm counts as harm.
"""

from __future__ import annotations

from collections.abc import Iterable

from graphpass.analysis.attention.find import Attention, find_attention
from graphpass.analysis.attention.match import read_scores
from graphpass.analysis.attention.types import NoMatchError
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.lengths.mask_order import FIRST_ONLY, PastOrder, order_of_mask
from graphpass.analysis.lengths.past_reach import reached, uses_length
from graphpass.ir.bodies import inlined
from graphpass.ir.cache import Inventory
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.model import Model
from graphpass.ir.slices import SLICES, starts_at_first
from graphpass.ir.values import one_number

__all__ = ["PastOrder", "past_order"]

#: What may happen to all entries of a cache before attention reads them: entry by entry, or beyond the new ones.
_EACH_ENTRY = frozenset(
    {"Add", "Assign", "Broadcast", "Concat", "Convert", "Divide", "Gather", "Identity", "MatMul", "Multiply", "Power"}
    | {"Reshape", "Result", "ShapeOf", "Split", "Sqrt", "Squeeze", "Tile", "Transpose", "Unsqueeze", "VariadicSplit"}
)

#: What happens to scores inside attention.
_INSIDE = frozenset(
    {"Add", "Clamp", "Convert", "Divide", "IsNaN", "MatMul", "Maximum", "Minimum", "Multiply", "ReduceMax", "Reshape"}
    | {"Select", "Slice", "Softmax", "StridedSlice", "Subtract", "Tanh", "VariadicSplit"}
)

_ALLOWED_PARTS = frozenset({"causal", "input", "alibi"})


def past_order(model: Model) -> PastOrder:
    """What ``model`` sees of the order in which past positions lie in its growing caches.

    Args:
        model: ONNX or OpenVINO, stateful or not. Kept until the model is edited.
    """
    return model.analysis(_past_order)


def _past_order(model: Model) -> PastOrder:
    inventory = analyze_caches(model)
    whole = inlined(model)
    graph = whole.graph
    found = _Attentions(graph, whole.analysis(find_attention))
    if found.unknown or not _are_plain(inventory):
        return "index"
    caches = {node.index for node in graph.of_op("Parameter", "ReadValue") if _grows(inventory, node)}
    masks = {node.index for node in graph.of_op("Parameter") if node.name == "attention_mask"}
    entries = reached(graph, caches, found.results)
    lengths = reached(graph, caches | masks, found.results)
    if not _keeps_entries_apart(graph, entries, found) or _counts_past(graph, lengths, entries, found):
        return "index"
    if not all(_hides_entries(graph, masks) for masks in found.masks_of_each):
        return "index"
    orders = {order_of_mask(graph, mask, lengths, found.results) for mask in found.masks}
    return "index" if "index" in orders else "order" if "order" in orders else "any"


class _Attentions:
    """Where attention is computed: its masks, its results."""

    def __init__(self, graph: Graph, attentions: Iterable[Attention]) -> None:
        self.masks_of_each: list[list[Value]] = []
        self.results: set[int] = set()
        self.inside: set[int] = set()
        self.unknown = False
        for attention in attentions:
            if attention.node.op == "ScaledDotProductAttention":
                self.masks_of_each.append([mask for mask in attention.node.inputs[3:4] if mask is not None])
                self.results.add(attention.node.index)
                self.unknown |= bool(attention.node.native.get_attributes().get("causal"))
            elif attention.node.op == "Softmax":
                self._add_decomposed(graph, attention)
            else:
                self.unknown = True

    @property
    def masks(self) -> list[Value]:
        return [mask for masks in self.masks_of_each for mask in masks]

    def _add_decomposed(self, graph: Graph, attention: Attention) -> None:
        try:
            scores = read_scores(graph, attention.node)
        except NoMatchError:
            self.unknown = True
            return
        assert scores.product is not None
        self.masks_of_each.append([mask.value for mask in scores.masks])
        inside = _until_product(graph, attention.node)
        if inside is None:
            self.unknown = True
            return
        self.inside |= inside
        self.results.add(max(inside))


def _until_product(graph: Graph, softmax: Node) -> set[int] | None:
    """The nodes from ``softmax`` to the product with the value, that included; ``None`` where there is no such way."""
    inside, pending = set(), [softmax]
    products = set()
    while pending:
        node = pending.pop()
        if node.index in inside:
            continue
        inside.add(node.index)
        if node.op == "MatMul":
            products.add(node.index)
        elif node.op in _INSIDE:
            pending += [use.node for output in node.outputs for use in graph.uses(output)]
        else:
            return None
    return inside if len(products) == 1 else None


def _are_plain(inventory: Inventory) -> bool:
    """Whether each attention reads growing caches, and sees what a mask of known parts lets through."""
    return all(
        block.key is not None
        and block.value is not None
        and block.window_in != "state"
        and block.mask is not None
        and set(block.mask) <= _ALLOWED_PARTS
        for block in inventory.attention
    )


def _hides_entries(graph: Graph, masks: list[Value]) -> bool:
    """Whether what ``attention_mask`` holds, and not its shape alone, comes into one of the masks of an attention."""
    behind = graph.backward(masks, lambda node: () if node.op in {"Shape", "ShapeOf"} else node.inputs)
    return any(node.op == "Parameter" and node.name == "attention_mask" for node in behind)


def _grows(inventory: Inventory, node: Node) -> bool:
    return any(node.name == cache.read for cache in inventory.of_kind("kv"))


def _keeps_entries_apart(graph: Graph, entries: set[int], found: _Attentions) -> bool:
    """Whether nothing but attention joins entries of a cache, or takes some of them."""
    shapes = _behind_shapes(graph, entries)
    for index in entries - shapes:
        node = graph.nodes[index]
        if node.op in {"Parameter", "ReadValue"} or index in found.inside or _is_before_softmax(graph, node, found):
            continue
        if node.op in SLICES:
            if not (_slices_last_axis(node) or starts_at_first(graph, node)):
                return False
        elif node.op not in _EACH_ENTRY:
            return False
    return True


def _behind_shapes(graph: Graph, entries: set[int]) -> set[int]:
    """Those of ``entries`` that hold sizes only."""
    shapes: set[int] = set()
    for index in sorted(entries):
        node = graph.nodes[index]
        sources = [value.node for value in node.inputs if value is not None and value.node in entries]
        if sources and all(source in shapes or graph.nodes[source].op == "ShapeOf" for source in sources):
            shapes.add(index)
    return shapes


def _is_before_softmax(graph: Graph, node: Node, found: _Attentions) -> bool:
    """Whether ``node`` only changes scores on their way to the Softmax."""
    if node.op not in _INSIDE | {"Concat"}:
        return False
    pending, seen = [node], set()
    while pending:
        current = pending.pop()
        if current.index in seen or current.index in found.inside:
            continue
        seen.add(current.index)
        following = [use.node for output in current.outputs for use in graph.uses(output)]
        if not following or any(use.op not in _INSIDE | {"Concat"} for use in following):
            return False
        pending += following
    return True


def _slices_last_axis(node: Node) -> bool:
    """Whether a slice leaves all axes but the last one of four as they are."""
    axes = node.attributes.get("axes")
    return node.op == "Slice" and node.outputs[0].rank == 4 and axes is not None and tuple(axes) in {(3,), (-1,)}


def _counts_past(graph: Graph, lengths: set[int], entries: set[int], found: _Attentions) -> bool:
    """Whether numbers that are neither masks nor shapes are computed from how many entries there are."""
    masks = {(mask.node, mask.port) for mask in found.masks}
    results = [value for node in graph.of_op("Result", "Assign") for value in node.inputs]
    pending: list[Value | None] = list(results)
    seen: set[tuple[int, int]] = set()
    while pending:
        value = pending.pop()
        if value is None or (value.node, value.port) in seen | masks:
            continue
        seen.add((value.node, value.port))
        node = graph.producer(value)
        if node.op in {"ShapeOf", "Size"}:
            if node.inputs[0] is not None and node.inputs[0].node in lengths:
                return True
        elif _is_known_dimension(graph, node):
            continue
        elif node.op == "Parameter" and node.name == "cache_position":
            return True
        elif node.op in SLICES:
            if not _slices_alike(graph, node, lengths, entries, found):
                return True
            pending.append(node.inputs[0])
        elif node.op == "ConstantOfShape":
            continue
        elif node.op == "ScaledDotProductAttention":
            pending += node.inputs[:3]
        else:
            pending += node.inputs[:1] if node.op in FIRST_ONLY else node.inputs
    return False


def _is_known_dimension(graph: Graph, node: Node) -> bool:
    """Whether ``node`` takes from a shape what the model fixes: the size of a head, mostly."""
    if node.op != "Gather" or node.inputs[0] is None or graph.producer(node.inputs[0]).op != "ShapeOf":
        return False
    source = graph.producer(node.inputs[0]).inputs[0]
    index = one_number(graph, node.inputs[1])
    if source is None or source.shape is None or index is None:
        return False
    return isinstance(source.shape[int(index)], int)


def _slices_alike(graph: Graph, node: Node, lengths: set[int], entries: set[int], found: _Attentions) -> bool:
    """Whether a slice takes the same, however many hidden entries there are.

    Of what holds something for each position it may take the new ones, which stand last; of anything else, what does
    not start at a length.
    """
    source = node.inputs[0]
    assert source is not None
    start = node.inputs[1] if len(node.inputs) > 1 else None
    if source.node not in lengths:
        return start is None or not uses_length(graph, start, lengths, found.results)
    if source.node in entries:
        return _slices_last_axis(node) or starts_at_first(graph, node)
    number = one_number(graph, start)
    if number is not None:
        return number in {0, -1}
    constants = [
        one_number(graph, operand)
        for step in graph.backward([start], _arithmetic)
        if step.op in {"Add", "Subtract"}
        for operand in step.inputs
    ]
    return not any(constants)


def _arithmetic(node: Node) -> tuple[Value | None, ...]:
    return () if node.op in {"ShapeOf", "Gather"} else node.inputs
