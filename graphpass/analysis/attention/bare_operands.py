"""Look through scales, axis swaps and idle conversions of the operands of decomposed attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from graphpass.analysis.attention.softmax import broadcast_to_itself
from graphpass.analysis.attention.types import Scale
from graphpass.analysis.pattern import Match, op, var
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import MissError
from graphpass.ir.values import is_activation, is_idle, is_scalar, is_wider

#: Permutations that swap the last two axes.
_SWAPS = ((0, 1, 3, 2), (0, 2, 1))


@dataclass(frozen=True, slots=True)
class BareOperand:
    """An operand of a product, without its scales and axis swaps.

    Attributes:
        value: The operand without them.
        role: Operand of the attention.
        scales: Factors between ``value`` and the product.
        swapped: Whether the last two axes are swapped between ``value`` and the product.
        forms: Values after ``value``, up to the operand of the product, each computed from the previous value.
    """

    value: Value
    role: Literal["query", "key", "value"]
    scales: tuple[Scale, ...] = ()
    swapped: bool = False
    forms: tuple[Value, ...] = ()

    def before(self, source: Value, *, scale: Scale | None = None, swaps: bool = False) -> BareOperand:
        """Return the operand with ``value`` replaced by ``source``, from which it is computed.

        Args:
            source: An input of the producer of ``value``.
            scale: Factor or divisor that the producer applies to ``source``; ``None`` without one.
            swaps: Whether the producer swaps the last two axes.
        """
        scales = (*self.scales, scale) if scale is not None else self.scales
        return BareOperand(source, self.role, scales, self.swapped != swaps, (self.value, *self.forms))


def bare_operands(
    graph: Graph, product: Node, weighing: Node, *, loosely: bool = False
) -> tuple[BareOperand, BareOperand, BareOperand]:
    """Return query, key and value, each of rank 4.

    Args:
        graph: The graph.
        product: The product of query and key.
        weighing: The product of probabilities and value.
        loosely: Whether to accept merged batch and heads axes with an unknown number of heads.

    Raises:
        MissError: An operand has another rank, or its merged axes are unknown.
    """
    query, key, value = _of_one_type(
        graph,
        _bare(graph, BareOperand(product.source(0), "query")),
        _bare(graph, BareOperand(product.source(1), "key")),
        _bare(graph, BareOperand(weighing.source(1), "value")),
    )
    if 3 in {query.value.rank, key.value.rank, value.value.rank}:
        query, key, value = (_with_heads(graph, operand) for operand in (query, key, value))
        heads = {operand.value.shape[1] for operand in (query, key, value) if operand.value.shape is not None} - {None}
        if len(heads) != 1 and not loosely:
            raise MissError(product, "it merges batch and heads, and the number of heads is not known")
    for operand in (query, key, value):
        if operand.value.rank != 4:
            reason = f"its {operand.role} {operand.value.name} has {operand.value.rank} dimensions, not 4"
            raise MissError(graph.producer(operand.value), reason)
    return query, key, value


def _with_heads(graph: Graph, operand: BareOperand) -> BareOperand:
    """Return ``[batch, heads, length, size]`` of an operand ``[batch * heads, length, size]``.

    Raises:
        MissError: The operand is not a Reshape that merges only batch and heads.
    """
    value, node = operand.value, graph.producer(operand.value)
    if value.rank != 3:
        return operand
    source = node.inputs[0] if node.op == "Reshape" else None
    sized = source
    while sized is not None and (same := broadcast_to_itself(graph.producer(sized))) is not None:
        sized = same
    if source is None or sized is None or value.shape is None or sized.shape is None or len(sized.shape) != 4:
        raise MissError(node, f"its operand {value.name} merges batch and heads, and is not a Reshape of 4 dimensions")
    # One of the last two sizes, head_dim, is fixed and unchanged if only batch and heads are merged.
    ends = zip(value.shape[-2:], sized.shape[-2:], strict=True)
    if not any(own == other and isinstance(own, int) for own, other in ends):
        raise MissError(node, f"cannot determine how {node.op} merges batch and heads")
    return _bare(graph, operand.before(source))


def _bare(graph: Graph, operand: BareOperand) -> BareOperand:
    """Return an operand before scales (query, key), axis swaps (key) and idle conversions."""
    while True:
        node = graph.producer(operand.value)
        scaled = scale_of(graph, node) if operand.role != "value" and node.op in {"Multiply", "Divide"} else None
        if scaled is not None:
            operand = operand.before(scaled[0], scale=scaled[1])
        elif operand.role == "key" and node.op == "Transpose" and node.attributes.get("order") in _SWAPS:
            operand = operand.before(node.source(), swaps=True)
        elif operand.role == "key" and isinstance(match := _MERGED_SWAP.match(graph, node), Match):
            if not _keeps_heads(match):
                return operand
            swap, rows = (match.nodes[name].outputs[0] for name in ("swap", "rows"))
            operand = operand.before(swap).before(rows, swaps=True).before(match["source"])
        elif is_idle(node):
            # Paged attention's matcher requires the cache's Concat directly before the operator
            # (state_management_pattern.cpp).
            operand = operand.before(node.source())
        elif (same := broadcast_to_itself(node)) is not None:
            operand = operand.before(same)
        else:
            return operand


#: torch.onnx merges batch and heads to swap the last two axes: ``_attention_scale``,
#: onnxscript/function_libs/torch_lib/ops/nn.py.
_MERGED_SWAP = op.Reshape(
    op.Transpose(op.Reshape(var("source"), ..., name="rows"), ..., order=(0, 2, 1), name="swap"), ...
)


def _keeps_heads(match: Match) -> bool:
    source, (rows, split) = match["source"].shape, (node.outputs[0].shape for node in (match.nodes["rows"], match.node))
    if source is None or rows is None or split is None or (len(source), len(rows), len(split)) != (4, 3, 4):
        return False
    _, heads, _, size = source
    is_known = isinstance(heads, int) and isinstance(size, int)
    return is_known and (split[1], split[2], rows[2]) == (heads, size, size)


def _of_one_type(
    graph: Graph, query: BareOperand, key: BareOperand, value: BareOperand
) -> tuple[BareOperand, BareOperand, BareOperand]:
    """Return the operands before widening Converts if that makes their types agree.

    Exports in f16 compute the Softmax, and often the scores, in f32. The CPU plugin does not fuse caches with an
    operator if Converts are between them, so key and value determine the type. The query may keep a wider type.
    """
    narrow_key, narrow_value = _narrow(graph, key), _narrow(graph, value)
    if narrow_key.value.element_type == narrow_value.value.element_type:
        key, value = narrow_key, narrow_value
    narrow_query = _narrow(graph, query)
    return (narrow_query if narrow_query.value.element_type == key.value.element_type else query), key, value


def _narrow(graph: Graph, operand: BareOperand) -> BareOperand:
    node = graph.producer(operand.value)
    source = node.inputs[0] if node.op == "Convert" else None
    if source is None or not is_wider(operand.value.element_type, source.element_type):
        return operand
    return _bare(graph, operand.before(source))


def scale_of(graph: Graph, node: Node) -> tuple[Value, Scale] | None:
    """Return the tensor that a Multiply or Divide scales, and the scale.

    Args:
        graph: The graph.
        node: The Multiply or Divide.

    Returns:
        The tensor and the operand of one element, in a Divide the divisor; ``None`` without such an operand.
    """
    first, second, divides = node.source(0), node.source(1), node.op == "Divide"
    # If both have one element, as with one head and one token, the constant is the scale.
    second_scales = is_scalar(second) and not (is_scalar(first) and not is_activation(graph, first))
    if second_scales or (divides and is_scalar(second)):
        return first, Scale(second, divides)
    return (second, Scale(first, divides=False)) if is_scalar(first) and not divides else None
