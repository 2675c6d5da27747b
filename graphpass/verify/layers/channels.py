"""Split a feed-forward part along its inner channels, over which its last MatMul sums."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from graphpass.analysis.caches.chain import SKIP_NORMS
from graphpass.ir.operators import CASTS, NORMS, POSITIONWISE, SPLITS
from graphpass.ir.values import fixed_size, is_activation, is_scalar, known_elements
from graphpass.verify.layers.slices import Cutter, bounds, columns_of, multiplied_constant

if TYPE_CHECKING:
    from graphpass.ir.graph import Graph, Node, Use, Value
    from graphpass.ir.model import Model


@dataclass(frozen=True, slots=True)
class _Maker:
    """A MatMul, or a range of its columns, that computes inner channels.

    Attributes:
        value: The channels, ``[batch, length, n]``.
        product: The MatMul.
        weights: Its weights, a Constant, before casts.
        first: Index of the column of the first channel.
    """

    value: Value
    product: Node
    weights: Value
    first: int


@dataclass(frozen=True, slots=True)
class Channels:
    """Inner channels of a feed-forward part, computed by MatMuls and elementwise operators.

    Attributes:
        product: The MatMul that sums over channels.
        weights: Its weights, a Constant, before casts.
        makers: The MatMuls that compute channels.
        constants: Constants with an element for each channel, with the indices of the nodes that read them.
        slices: Start and end, exclusive, of the ranges of channels that run separately.
    """

    product: Node
    weights: Value
    makers: tuple[_Maker, ...]
    constants: tuple[tuple[Value, frozenset[int]], ...]
    slices: tuple[tuple[int, int], ...]


def find_channels(graph: Graph) -> Channels | None:
    """Return the inner channels of a part: those of its MatMul with the largest weights."""
    candidates = [_channels(graph, product) for product in graph.of_op("MatMul")]
    return max(
        (candidate for candidate in candidates if candidate is not None),
        key=lambda candidate: known_elements(candidate.weights),
        default=None,
    )


def with_channels(model: Model, ends: tuple[int, int]) -> Model:
    """Return a copy of a part that computes a range of its inner channels.

    Args:
        model: The extracted part, with channels that `find_channels` finds.
        ends: Start and end, exclusive, of the range: one of `Channels.slices`.
    """
    copy = model.clone()
    graph = copy.graph
    channels = find_channels(graph)
    assert channels is not None
    cutter = Cutter(copy, "channels")
    rewriter, write = cutter.rewriter, cutter.write
    for maker in channels.makers:
        product, axis = maker.product, columns_of(maker.product)
        some = cutter.cut(maker.weights, (maker.first + ends[0], maker.first + ends[1]), axis)
        attributes: dict[str, Any] = {"transpose_b": True} if axis == 0 else {}
        some = write.convert(some, product.source(1).element_type)
        rewriter.replace(maker.value, write.op("MatMul", product.source(), some, **attributes))
    for value, readers in channels.constants:
        some = cutter.cut(value, ends, (value.rank or 1) - 1)
        rewriter.redirect_uses(value, some, partial(_is_among, readers))
    some = cutter.cut(channels.weights, ends, 1 - columns_of(channels.product))
    rewriter.redirect(channels.product, 1, write.convert(some, channels.product.source(1).element_type))
    cutter.finish()
    return copy


def _is_among(readers: frozenset[int], use: Use) -> bool:
    return use.node.index in readers


def _channels(graph: Graph, product: Node) -> Channels | None:
    weights = multiplied_constant(graph, product)
    count = fixed_size(weights, 1 - columns_of(product))
    if weights is None or count is None or not _is_added(graph, product):
        return None
    makers: list[_Maker] = []
    constants: dict[Value, set[int]] = {}
    pending, inside = [product.source()], {product.index}
    while pending:
        value = pending.pop()
        node = graph.producer(value)
        if fixed_size(value, -1) != count:
            return None
        if (maker := _maker(graph, value)) is not None:
            if maker not in makers:
                makers.append(maker)
            continue
        if node.index in inside:
            continue
        if node.op not in POSITIONWISE - NORMS:
            return None
        inside.add(node.index)
        for source in node.inputs:
            # Operands of one channel broadcast to any number of channels.
            if source is None or is_scalar(source) or fixed_size(source, -1) == 1:
                continue
            if graph.producer(graph.look_through(source, CASTS)).op != "Constant":
                pending.append(source)
            elif fixed_size(source, -1) == count and graph.producer(source).op == "Constant":
                constants.setdefault(source, set()).add(node.index)
            else:
                return None
    values = [
        *(maker.value for maker in makers),
        *(graph.nodes[index].outputs[0] for index in inside - {product.index}),
    ]
    if not makers or any(use.node.index not in inside for value in values for use in graph.uses(value)):
        return None
    read = tuple((value, frozenset(readers)) for value, readers in constants.items())
    # Slices follow from the sizes of single products, whether or not they are joined with others.
    widths = [fixed_size(weights, columns_of(product)) or 0]
    widths += [fixed_size(maker.weights, 1 - columns_of(maker.product)) or 0 for maker in makers]
    return Channels(product, weights, tuple(makers), read, bounds(count, count * max(widths)))


def _is_added(graph: Graph, product: Node) -> bool:
    """Return whether a product, scaled or with a bias, is added to the residual stream.

    A norm in between would remove the scale of each slice's result.
    """
    value = product.outputs[0]
    while len(uses := graph.uses(value)) == 1:
        node = uses[0].node
        others = [value for port, value in enumerate(node.inputs) if port != uses[0].port and value is not None]
        if node.op in SKIP_NORMS or (node.op == "Add" and is_activation(graph, others[0])):
            return True
        if node.op not in CASTS | {"Add", "Multiply"} or any(is_activation(graph, value) for value in others):
            return False
        value = node.outputs[0]
    return False


def _maker(graph: Graph, value: Value) -> _Maker | None:
    """Return the MatMul, or its columns, that compute ``value``; ``None`` if another operator does."""
    node, first = graph.producer(value), 0
    if node.op in SPLITS:
        before = [fixed_size(output, -1) for output in node.outputs[: value.port]]
        if node.attributes.get("axis") not in {-1, (value.rank or 0) - 1} or None in before:
            return None
        node, first = graph.producer(node.source()), sum(size for size in before if size)
    if node.op != "MatMul" or (weights := multiplied_constant(graph, node)) is None:
        return None
    return _Maker(value, node, weights, first)
