"""Find the two products of attention around a Softmax, and its sink.

A sink is a learned column of scores: ``softmax(concat(scores, sink))[..., :-1] @ value`` in GPT-OSS.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from graphpass.analysis.pattern import Match, op, var
from graphpass.analysis.symbolic.folding import fold, fold_cuts
from graphpass.ir.graph import Graph, Node, Use, Value
from graphpass.ir.miss import MissError
from graphpass.ir.operators import ARITHMETIC, EXTREMA, KEEPS_ORDER, QUANTIZERS, SLICES, SPLITS
from graphpass.ir.values import fixed_size, is_activation, is_value_preserving, multiplies_matrices

#: Operators between the product of query and key and the Softmax; a Slice drops unused slots of a fixed capacity.
_SCORES = ARITHMETIC | EXTREMA | KEEPS_ORDER | QUANTIZERS | {"Concat", "Select", "Slice", "Tanh"}

#: Operators between the Softmax and the product with the value: for example, to drop the column of a sink, to replace
#: NaN, or to pad to the capacity of a cache.
_PROBABILITIES = _SCORES | SLICES | SPLITS | {"Dropout", "IsNaN", "Pad"}


def is_attention(graph: Graph, softmax: Node) -> bool:
    """Return whether products of activations are upstream and downstream of ``softmax``.

    Args:
        graph: The graph.
        softmax: The Softmax, which may also belong to an expert router or sampler.
    """
    return any(True for _ in score_products(graph, softmax.source())) and weighing_product(graph, softmax) is not None


def score_products(graph: Graph, value: Value) -> Iterator[Node]:
    """Yield the products of two activations upstream of ``value``, through operators on scores.

    Args:
        graph: The graph.
        value: Input of a Softmax, or an operand of an operator before it.
    """
    for node in graph.backward([value], _scores):
        if multiplies_matrices(node) and all(is_activation(graph, operand) for operand in node.inputs):
            yield node


def _scores(node: Node) -> tuple[Value | None, ...]:
    if (same := broadcast_to_itself(node)) is not None:
        return (same,)
    if node.op not in _SCORES:
        return ()
    if node.op == "Select":
        return node.inputs[1:]
    return node.inputs[:1] if node.op in QUANTIZERS | {"Slice"} else node.inputs


def broadcast_to_itself(node: Node) -> Value | None:
    """Return the input of a Broadcast that keeps the shape; ``None`` for other nodes.

    OpenVINO replaces an addition of zeros by such a Broadcast.
    """
    # A third input maps axes. Unknown dimensions count as equal, because the product is valid only if they are.
    if node.op != "Broadcast" or len(node.inputs) != 2 or (source := node.inputs[0]) is None:
        return None
    before, after = source.shape, node.outputs[0].shape
    if before is None or after is None or len(before) != len(after):
        return None
    grows = any(old == 1 and new != 1 for old, new in zip(before, after, strict=True))
    return None if grows else source


def weighing_product(graph: Graph, softmax: Node) -> Node | None:
    """Return the product of the probabilities of ``softmax`` with the value, an activation.

    Args:
        graph: The graph.
        softmax: Producer of the probabilities, which are the left operand of the product.

    Returns:
        The MatMul; ``None`` without one.
    """

    def outputs(use: Use) -> tuple[Value, ...]:
        passes = use.node.op in _PROBABILITIES or (use.port == 0 and broadcast_to_itself(use.node) is not None)
        return use.node.outputs if passes else ()

    uses = graph.forward(softmax.outputs, outputs)
    return next(
        (
            use.node
            for use in uses
            if use.node.op == "MatMul" and use.port == 0 and is_activation(graph, use.node.inputs[1])
        ),
        None,
    )


Column = Literal["first", "last"]
"""Position of the column of a sink along the last axis of the scores."""

#: Operators that can drop the column of a sink.
COLUMN_DROPS = SLICES | SPLITS


def sink_of(graph: Graph, concat: Node) -> tuple[Value, Value, Column]:
    """Return scores, sink and the column of the sink, joined by ``concat``.

    Args:
        graph: The graph.
        concat: The Concat upstream of a Softmax.

    Returns:
        A sink with one value per head is ``[1, heads, 1, 1]``, possibly with ``heads`` 1 or without leading dimensions.
        Other sinks, such as one value per query, are returned as they are joined.

    Raises:
        MissError: ``concat`` joins other tensors, or joins them along another axis.
    """
    operands = concat.sources
    scores = [any(True for _ in score_products(graph, operand)) for operand in operands]
    if len(operands) != 2 or scores.count(True) != 1:
        raise MissError(concat, "Concat does not join its scores and one attention sink")
    if concat.outputs[0].rank != 4 or concat.attributes.get("axis") not in {-1, 3}:
        raise MissError(concat, "its attention sink is not joined along the last of four axes")
    column: Column = "last" if scores[0] else "first"
    beside = operands[1 if scores[0] else 0]
    # An unknown number of columns counts as one, because the product with the value is valid only for one.
    if fixed_size(beside, -1) not in {1, None}:
        raise MissError(concat, f"its attention sink has more than one column: {beside.name}")

    def copies(node: Node) -> bool:
        # A third input of a Broadcast maps axes; without it, shapes align at their last axes.
        is_copy = is_value_preserving(node) or (node.op == "Broadcast" and len(node.inputs) == 2)
        return is_copy and not is_one_per_head(node.outputs[0])

    sink = graph.look_through(beside, copies)
    return operands[0 if scores[0] else 1], sink if is_one_per_head(sink) else beside, column


def is_one_per_head(value: Value) -> bool:
    """Return whether a sink has one value per head."""
    if value.shape is None or len(value.shape) > 4:
        return False
    batch, heads, row, column = [1] * (4 - len(value.shape)) + list(value.shape)
    return (batch, row, column) == (1, 1, 1) and isinstance(heads, int)


def dropped_column(graph: Graph, node: Node) -> tuple[Value, Column]:
    """Return the probabilities that ``node`` keeps, and the column that it drops.

    Args:
        graph: The graph.
        node: An operator of `COLUMN_DROPS` downstream of a Softmax.

    Raises:
        MissError: ``node`` does not drop exactly one column, the first or the last.
    """
    column = _split_off(graph, node) if node.op in SPLITS else _sliced_off(graph, node)
    if column is None:
        raise MissError(node, "it does not drop exactly the first or last column of its probabilities")
    return column


def _sliced_off(graph: Graph, node: Node) -> tuple[Value, Column] | None:
    cuts = [cut for cut in fold_cuts(graph, node) if not (cut.starts_at_first and cut.reaches_end)]
    if len(cuts) != 1 or not _is_last(node, (cuts[0].axis,)) or cuts[0].step != 1:
        return None
    if (cuts[0].start, cuts[0].stop) == (0, -1):
        return node.outputs[0], "last"
    return (node.outputs[0], "first") if cuts[0].start == 1 and cuts[0].reaches_end else None


def _split_off(graph: Graph, node: Node) -> tuple[Value, Column] | None:
    lengths = fold(graph, node.inputs[-1])
    if len(node.outputs) != 2 or lengths is None or lengths.size != 2:
        return None
    if not _is_last(node, (node.attributes.get("axis"),)):
        return None
    first, last = (int(length) == 1 for length in lengths.reshape(-1))
    if last and not graph.uses(node.outputs[1]):
        return node.outputs[0], "last"
    if first and not graph.uses(node.outputs[0]):
        return node.outputs[1], "first"
    return None


def _is_last(node: Node, axes: tuple[int | None, ...]) -> bool:
    return axes in {(-1,), ((node.outputs[0].rank or 0) - 1,)}


def subtracts_row_maximum(graph: Graph, node: Node) -> bool:
    """Return whether ``node`` subtracts each row's maximum, which does not change the Softmax.

    Args:
        graph: The graph.
        node: An operator on scores.
    """
    match = _ROW_MAXIMUM.match(graph, node)
    if not isinstance(match, Match) or node.source(0).rank != node.source(1).rank:
        return False
    return _is_last(node, match.nodes["maximum"].attributes.get("axes", ()))


_ROW_MAXIMUM = op.Subtract(var("scores"), op.ReduceMax(var("scores"), ..., name="maximum"))
