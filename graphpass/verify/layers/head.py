"""Cut the product with the vocabulary, which may be larger than all layers."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from graphpass.ir.operators import CASTS
from graphpass.ir.values import head_of, is_activation, is_scalar

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphpass.ir.graph import Graph, Node, Use, Value
    from graphpass.ir.model import Model

LOGITS = "logits"

#: Bytes in f32 of the weights that run at a time.
_MOST = 128e6


@dataclass(frozen=True, slots=True)
class Head:
    """Describes the product with the vocabulary.

    Attributes:
        product: The MatMul.
        weights: Its weights, a Constant, before casts.
        axis: The axis of words.
        words: Their number.
        bytes: Size of the weights in f32.
    """

    product: Node
    weights: Value
    axis: int
    words: int
    bytes: int

    @property
    def slices(self) -> tuple[tuple[int, int], ...]:
        """Return first and last word, exclusive, of slices that run one after the other."""
        count = max(1, -int(-self.bytes // _MOST))
        ends = [self.words * number // count for number in range(count + 1)]
        return tuple(pairwise(ends))


def find_head(graph: Graph, logits: Node) -> Head | None:
    """Return the product that makes ``logits``, if all after it treats words alike."""
    node = head_of(graph, logits)
    if node is None or node.op != "MatMul":
        return None
    weights = graph.look_through(node.source(1), CASTS)
    axis = 0 if node.attributes.get("transpose_b") else 1
    sizes = [size for size in weights.shape or () if isinstance(size, int)]
    if (
        graph.producer(weights).op != "Constant"
        or weights.rank != 2
        or len(sizes) != 2
        or not _treats_words_alike(graph, node, logits.source())
    ):
        return None
    return Head(node, weights, axis, sizes[axis], 4 * sizes[0] * sizes[1])


def with_words(model: Model, words: tuple[int, int]) -> Model:
    """Copy a part whose head computes some words alone, the first to before the last."""
    copy = model.clone()
    graph = copy.graph
    logits = next(node for node in graph.of_op("Result") if node.name == LOGITS)
    head = find_head(graph, logits)
    assert head is not None
    rewriter = copy.rewriter()
    some = rewriter.under("graphpass/head").slice(head.weights, *words, head.axis)
    rewriter.redirect_uses(head.weights, some, _leads_to(graph, head.product))
    rewriter.resize_port(logits, [None, None, words[1] - words[0]])
    rewriter.finish()
    return copy


def _leads_to(graph: Graph, product: Node) -> Callable[[Use], bool]:
    def leads(use: Use) -> bool:
        node = use.node
        while node.op in CASTS and len(graph.uses(node.outputs[0])) == 1:
            node = graph.uses(node.outputs[0])[0].node
        return node == product

    return leads


def _treats_words_alike(graph: Graph, product: Node, logits: Value) -> bool:
    value = logits
    while value.node != product.index:
        node = graph.producer(value)
        others = [one for one in node.inputs if one is not None and not is_activation(graph, one)]
        if not all(is_scalar(one) for one in others):
            return False
        value = next(one for one in node.inputs if one is not None and is_activation(graph, one))
    return True
