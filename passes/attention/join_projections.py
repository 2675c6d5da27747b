"""The pass `join-projections`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphpass.analysis.pattern import Match, op, var
from graphpass.analysis.symbolic.folding import fold_cuts
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import Miss, MissError, or_miss
from graphpass.ir.operators import CASTS, SLICES
from graphpass.ir.rewriter import Handle, Rewriter
from graphpass.ir.values import fixed_size

_PRODUCT = op.MatMul(
    var("x"), var("weight"), name="product", miss=lambda node: f"{node.op} stands between a product and attention"
)
_PROJECTION = _PRODUCT | op.Add(_PRODUCT, var("bias"))

#: Query, key and value of GroupQueryAttention.
_OPERANDS = 3


@dataclass(frozen=True)
class JoinProjections(Pass[OnnxModel]):
    """Compute query, key and value of GroupQueryAttention in one product.

    Attention takes the three in one tensor. Three products of a step become one: 172 us instead of 196 for a hidden
    size of 896 and 14 heads over 2 of 64, two threads (ONNX Runtime 1.31, CPU). A tensor that is split in front of the
    operator is handed over whole. Products with anything else in front of attention, such as norms of heads, stay
    apart: a Split takes what is won.

    Weights stay in their places, and no byte of them is read or written: ONNX Runtime concatenates them when it opens
    a model. It does that at each step if its optimizations are off.

    Shapes:
        x ``[batch, length, hidden]``, weights ``[hidden, heads * head_dim]``, biases ``[heads * head_dim]``

    Before:
        GroupQueryAttention(Add(MatMul(x, weight), bias), .., .., past key, past value, ..)
        GroupQueryAttention(Split(projected), past key, past value, ..)
    After:
        GroupQueryAttention(Add(MatMul(x, Concat(weights)), Concat(biases)), , , past key, past value, ..)
        GroupQueryAttention(projected, , , past key, past value, ..)
    """

    name = "join-projections"
    dialect = "onnx"

    def run(self, model: OnnxModel) -> Done:
        graph, rewriter = model.graph, model.rewriter()
        products = whole = 0
        apart: dict[str, list[Miss]] = {}
        for node in graph.of_op("GroupQueryAttention"):
            if node.input(1) is None or node.input(2) is None:
                continue
            origin = _find(graph, node)
            if isinstance(origin, Miss):
                apart.setdefault(origin.reason, []).append(origin)
                continue
            if isinstance(origin, Value):
                whole += 1
                packed: Handle = origin
            else:
                products += len(origin)
                packed = _joined(rewriter, node, origin)
            rewriter.set_input(node, 0, packed)
            for port in range(1, _OPERANDS):
                rewriter.set_input(node, port, None)
        rewriter.finish()
        counts = {"products joined": products, "splits dropped": whole}
        notes = tuple(f"products of {len(misses)} attention stay apart: {misses[0]}" for misses in apart.values())
        return Done({name: count for name, count in counts.items() if count}, notes)


@or_miss
def _find(graph: Graph, node: Node) -> Value | tuple[Match, ...]:
    """Return the value that is split to operands of ``node``, or their products."""
    operands = [node.source(port) for port in range(_OPERANDS)]
    if len(set(operands)) < _OPERANDS:
        raise MissError(node, "two of its operands are one")
    whole = _split(graph, operands)
    return tuple(_products(graph, node, operands)) if whole is None else whole


def _split(graph: Graph, operands: list[Value]) -> Value | None:
    """Return the value that ``operands`` are all parts of, in order."""
    makers = [graph.producer(operand) for operand in operands]
    source = makers[0].input(0)
    size = fixed_size(source, -1)
    if source is None or size is None or any(maker.input(0) != source for maker in makers):
        return None
    place = 0
    for maker, operand in zip(makers, operands, strict=True):
        width = fixed_size(operand, -1)
        if width is None or _start(graph, maker, operand) != place:
            return None
        place += width
    return source if place == size else None


def _start(graph: Graph, maker: Node, part: Value) -> int | None:
    """Return the place at which ``part`` begins along the last axis of the maker's input."""
    last = (part.rank or 0) - 1
    if maker.op == "VariadicSplit" and maker.attributes["axis"] == last:
        widths = [fixed_size(output, -1) for output in maker.outputs[: part.port]]
        return None if None in widths else sum(width for width in widths if width is not None)
    cuts = fold_cuts(graph, maker) if maker.op in SLICES else ()
    return cuts[0].start if len(cuts) == 1 and cuts[0].axis == last and cuts[0].step == 1 else None


def _products(graph: Graph, node: Node, operands: list[Value]) -> Iterator[Match]:
    """Yield the product of each operand.

    Raises:
        MissError: One is not a product of the same input with a weight, or its result is read elsewhere, too.
    """
    first: Match | None = None
    for operand in operands:
        match = _PROJECTION.match(graph, operand)
        if isinstance(match, Miss):
            raise MissError(match.node, match.reason)
        first = first or match
        product, bias = match.nodes["product"], match.values.get("bias")
        if match["x"] != first["x"]:
            raise MissError(product, f"it reads {match['x'].name}, and another product {first['x'].name}")
        if (bias is None) != ("bias" not in first.values):
            raise MissError(product, "some products have a bias, and some have none")
        weight = match["weight"]
        if not _is_constant(graph, weight) or weight.rank != 2 or weight.element_type != first["weight"].element_type:
            raise MissError(product, f"its weight {weight.name} is not a constant matrix of the others' type")
        if bias is not None and (not _is_constant(graph, bias) or bias.rank != 1):
            raise MissError(product, f"its bias {bias.name} is not a constant vector")
        if any(len(graph.uses(value)) > 1 for value in (operand, product.outputs[0])):
            raise MissError(product, f"its result is read elsewhere than by {node.name}, too")
        yield match


def _is_constant(graph: Graph, value: Value) -> bool:
    return graph.producer(graph.look_through(value, CASTS | {"Transpose"})).op == "Constant"


def _joined(rewriter: Rewriter, node: Node, products: tuple[Match, ...]) -> Handle:
    write = rewriter.under(node.name)
    weights = write.op("Concat", *(product["weight"] for product in products), axis=1, label="weights")
    joined = write.op("MatMul", products[0]["x"], weights, label="projections")
    if "bias" not in products[0].values:
        return joined
    biases = write.op("Concat", *(product["bias"] for product in products), axis=0, label="biases")
    return write.op("Add", joined, biases, label="with_bias")
