"""Takes off query, key and value of a decomposed attention what was put on them for the products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from graphpass.analysis.attention.types import NoMatchError, Scale
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.values import SAME_ELEMENTS, is_computed, is_scalar, is_wider

__all__ = ["Operand", "bare_operands", "scale_of"]

#: Orders that swap the last two axes.
_SWAPS = ((0, 1, 3, 2), (0, 2, 1))


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand of a product without what was put on it.

    Attributes:
        value: The operand.
        role: Which one.
        scales: The factors that were on it.
        swapped: Whether its last two axes were swapped.
        forms: What was made of it for the product, from what is made of ``value`` itself to what the product reads.
    """

    value: Value
    role: Literal["query", "key", "value"]
    scales: tuple[Scale, ...] = ()
    swapped: bool = False
    forms: tuple[Value, ...] = ()

    def before(self, source: Value | None, *, scale: Scale | None = None, swaps: bool = False) -> Operand:
        """The same operand as it is in ``source``, of which ``value`` is made."""
        assert source is not None
        scales = (*self.scales, scale) if scale is not None else self.scales
        return Operand(source, self.role, scales, self.swapped != swaps, (self.value, *self.forms))


def bare_operands(graph: Graph, product: Node, weighing: Node) -> tuple[Operand, Operand, Operand]:
    """Query, key and value, each of four axes.

    Args:
        graph: Where they are.
        product: What multiplies query and key.
        weighing: What multiplies the probabilities and the value.

    Raises:
        NoMatchError: One has other axes.
    """
    first, second, third = product.inputs[0], product.inputs[1], weighing.inputs[1]
    assert first is not None
    assert second is not None
    assert third is not None
    query, key, value = _of_one_type(
        graph,
        _bare(graph, Operand(first, "query")),
        _bare(graph, Operand(second, "key")),
        _bare(graph, Operand(third, "value")),
    )
    if 3 in {query.value.rank, key.value.rank, value.value.rank}:
        query, key, value = (_with_heads(graph, operand) for operand in (query, key, value))
        _check_heads(query, key, value)
    for operand in (query, key, value):
        if operand.value.rank != 4:
            raise NoMatchError(f"its {operand.role} {operand.value.name} has {operand.value.rank} dimensions, not 4")
    return query, key, value


def _with_heads(graph: Graph, operand: Operand) -> Operand:
    """``[batch, heads, length, size]`` of which ``operand`` is ``[batch * heads, length, size]``."""
    value = operand.value
    if value.rank != 3:
        return operand
    node = graph.producer(value)
    source = node.inputs[0] if node.op == "Reshape" else None
    if source is None or value.shape is None or source.shape is None or len(source.shape) != 4:
        raise NoMatchError(f"its operand {value.name} merges batch and heads, and is not made of one that does not")
    # One of the last two axes is known: the size of a head.
    ends = zip(value.shape[-2:], source.shape[-2:], strict=True)
    if not any(own == other and isinstance(own, int) for own, other in ends):
        raise NoMatchError(f"it cannot be told how {node.op} {node.name} merges batch and heads")
    return _bare(graph, operand.before(source))


def _check_heads(*operands: Operand) -> None:
    """That operands whose heads were merged into the batch have the same heads, and that their number is known."""
    heads = {operand.value.shape[1] for operand in operands if operand.value.shape is not None} - {None}
    if len(heads) != 1:
        raise NoMatchError("it merges batch and heads, and it cannot be told how many heads there are")


def _bare(graph: Graph, operand: Operand) -> Operand:
    """``operand`` without scales (but for the value), a swap of the last two axes (of the key) and idle Converts."""
    while True:
        node = graph.producer(operand.value)
        scaled = operand.role != "value" and node.op in {"Multiply", "Divide"}
        if scaled and (scale := scale_of(graph, node)) is not None:
            operand = operand.before(scale[0], scale=scale[1])
        elif operand.role == "key" and node.op == "Transpose" and node.attributes.get("order") in _SWAPS:
            operand = operand.before(node.inputs[0], swaps=True)
        elif operand.role == "key" and (merged := _swapped_while_merged(graph, node)) is not None:
            swapped, rows, source = merged
            operand = operand.before(swapped).before(rows, swaps=True).before(source)
        elif _does_nothing(node):
            # Paged attention's matcher wants the cache's Concat right at the operator (state_management_pattern.cpp).
            operand = operand.before(node.inputs[0])
        else:
            return operand


def _swapped_while_merged(graph: Graph, split: Node) -> tuple[Value, Value, Value] | None:
    """What ``split`` splits into batch and heads again, what that swaps the last two axes of, and what that merges.

    So torch.onnx writes the swap in scaled_dot_product_attention (``_attention_scale`` and what follows it in
    onnxscript's ``function_libs/torch_lib/ops/nn.py``). Heads and the size of one are the same before and behind.
    """
    swap = _made_by(graph, split, "Reshape")
    merge = (
        _made_by(graph, swap, "Transpose") if swap is not None and swap.attributes.get("order") == (0, 2, 1) else None
    )
    source = merge.inputs[0] if merge is not None and merge.op == "Reshape" else None
    if swap is None or merge is None or source is None or source.shape is None or len(source.shape) != 4:
        return None
    _, heads, _, size = source.shape
    behind, rows = split.outputs[0].shape, merge.outputs[0].shape
    if behind is None or rows is None or len(behind) != 4 or not isinstance(heads, int) or not isinstance(size, int):
        return None
    return (
        (swap.outputs[0], merge.outputs[0], source) if (behind[1], behind[2], rows[2]) == (heads, size, size) else None
    )


def _made_by(graph: Graph, node: Node, op: str) -> Node | None:
    """What makes the input of ``node``, where that is an ``op``."""
    return graph.producer(node.inputs[0]) if node.op == op and node.inputs[0] is not None else None


def _does_nothing(node: Node) -> bool:
    """Whether ``node`` is an Identity, or a Convert to the type that its input has."""
    source = node.inputs[0] if node.op in SAME_ELEMENTS else None
    return source is not None and (node.op == "Identity" or source.element_type == node.outputs[0].element_type)


def _of_one_type(graph: Graph, query: Operand, key: Operand, value: Operand) -> tuple[Operand, Operand, Operand]:
    """The operands before Converts that widened some or all of them, where that makes their types agree.

    Exports in f16 compute the Softmax, and often the scores, in f32. A Convert between cache and operator keeps the CPU
    plugin from fusing the two, so that key and value decide; the query may stay wider than they are.
    """
    narrow_key, narrow_value = _narrow(graph, key), _narrow(graph, value)
    if narrow_key.value.element_type == narrow_value.value.element_type:
        key, value = narrow_key, narrow_value
    narrow_query = _narrow(graph, query)
    return (narrow_query if narrow_query.value.element_type == key.value.element_type else query), key, value


def _narrow(graph: Graph, operand: Operand) -> Operand:
    """``operand`` before a Convert that widened it, and bare there too; ``operand`` itself where there is none."""
    node = graph.producer(operand.value)
    source = node.inputs[0] if node.op == "Convert" else None
    if source is None or not is_wider(operand.value.element_type, source.element_type):
        return operand
    return _bare(graph, operand.before(source))


def scale_of(graph: Graph, node: Node) -> tuple[Value, Scale] | None:
    """What ``node`` scales as a whole, and by what."""
    first, second = node.inputs
    assert first is not None
    assert second is not None
    divides = node.op == "Divide"
    # Where both have one element, the constant is the scale: a model with one head and a step of one token.
    second_scales = is_scalar(second) and not (is_scalar(first) and not is_computed(graph, first))
    if second_scales or (divides and is_scalar(second)):
        return first, Scale(second, divides)
    return (second, Scale(first, divides=False)) if is_scalar(first) and not divides else None
