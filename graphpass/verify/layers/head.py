"""Split the LM head, whose weights may be larger than those of all layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphpass.ir.operators import CASTS
from graphpass.ir.values import fixed_size, head_of, is_activation, is_scalar, known_elements
from graphpass.verify.layers.slices import Cutter, bounds, columns_of, multiplied_constant

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphpass.ir.graph import Graph, Node, Use, Value
    from graphpass.ir.model import Model

LOGITS = "logits"


@dataclass(frozen=True, slots=True)
class Head:
    """The LM head: the MatMul that computes one logit for each token id.

    Attributes:
        product: The MatMul.
        weights: Its weights, a Constant, before casts.
        slices: Start and end, exclusive, of the ranges of token ids that run separately.
    """

    product: Node
    weights: Value
    slices: tuple[tuple[int, int], ...]


def find_head(graph: Graph, logits: Node) -> Head | None:
    """Return the MatMul of ``logits``; ``None`` if operators after it depend on the token id.

    Args:
        graph: Graph of the model.
        logits: The Result of the logits.
    """
    product = head_of(graph, logits)
    if product is None or product.op != "MatMul":
        return None
    weights = multiplied_constant(graph, product)
    words = fixed_size(weights, columns_of(product))
    if weights is None or words is None or not _treats_words_alike(graph, product, logits.source()):
        return None
    return Head(product, weights, bounds(words, known_elements(weights)))


def with_words(model: Model, words: tuple[int, int]) -> Model:
    """Return a copy with the logits of a range of token ids.

    Args:
        model: The extracted last part, with a head that `find_head` finds.
        words: Start and end, exclusive, of the range: one of `Head.slices`.
    """
    copy = model.clone()
    graph = copy.graph
    logits = next(node for node in graph.of_op("Result") if node.name == LOGITS)
    head = find_head(graph, logits)
    assert head is not None
    cutter = Cutter(copy, "head")
    some = cutter.cut(head.weights, words, columns_of(head.product))
    cutter.rewriter.redirect_uses(head.weights, some, _leads_to(graph, head.product))
    cutter.rewriter.resize_port(logits, [None, None, words[1] - words[0]])
    cutter.finish()
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
        others = [value for value in node.sources if not is_activation(graph, value)]
        if not all(is_scalar(value) for value in others):
            return False
        value = next(value for value in node.sources if is_activation(graph, value))
    return True
