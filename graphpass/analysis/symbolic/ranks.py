"""Ranks of outputs that graphs do not declare, as in bodies of ONNX."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from graphpass.ir.axes import axis_effect
from graphpass.ir.graph import Node, Value
from graphpass.ir.operators import ELEMENTWISE, MATRIX_PRODUCTS, REDUCTIONS

Counts = Callable[[Value], "int | None"]
"""Returns the number of elements of a vector, or the rank of a tensor; ``None`` if unknown."""


def with_ranks(node: Node, value: Value, rank_of: Counts, count: Counts) -> tuple[Node, Value] | None:
    """Return ``node`` and its output with inferred ranks.

    Args:
        node: The operator.
        value: Its output.
        rank_of: Returns ranks of operands.
        count: Returns the number of elements of a vector.

    Returns:
        Both, with unknown sizes along each axis; ``None`` if the rank of the output is unknown.
    """
    if value.rank is not None and all(value.rank is not None for value in node.sources):
        return node, value
    inputs = tuple(None if value is None else _ranked(value, rank_of(value)) for value in node.inputs)
    return with_rank(replace(node, inputs=inputs), value, count)


def with_rank(node: Node, value: Value, count: Counts) -> tuple[Node, Value] | None:
    """Return ``node`` and its output with the inferred rank of the output; ``None`` if unknown.

    Args:
        node: The operator, with known ranks of its inputs.
        value: Its output; a declared rank is kept.
        count: Returns the number of elements of a vector, such as the shape of a Reshape.
    """
    rank = value.rank if value.rank is not None else _rank(node, count)
    if rank is None:
        return None
    result = _ranked(value, rank)
    outputs = tuple(result if output.port == value.port else output for output in node.outputs)
    return replace(node, outputs=outputs), result


def _ranked(value: Value, rank: int | None) -> Value:
    return value if value.rank is not None or rank is None else replace(value, shape=(None,) * rank)


def _rank(node: Node, count: Counts) -> int | None:
    ranks = [value.rank for value in node.sources]
    if node.op in ELEMENTWISE | MATRIX_PRODUCTS:
        known = [rank for rank in ranks if rank is not None]
        return max(known, default=None) if len(known) == len(ranks) else None
    if not ranks or ranks[0] is None:
        return None
    rule = _RULES.get(node.op)
    if rule is not None:
        return rule(node, ranks[0], count)
    effect = axis_effect(node, ranks[0])
    return ranks[0] if effect is not None and len(effect.origins) == ranks[0] else None


def _number_of_axes(node: Node, count: Counts) -> int | None:
    stated = node.attributes.get("axes")
    axes = node.input(1)
    return len(stated) if stated is not None else None if axes is None else count(axes)


def _unsqueezed(node: Node, rank: int, count: Counts) -> int | None:
    new = _number_of_axes(node, count)
    return None if new is None else rank + new


def _squeezed(node: Node, rank: int, count: Counts) -> int | None:
    gone = _number_of_axes(node, count)
    return None if gone is None else rank - gone


def _reduced(node: Node, rank: int, count: Counts) -> int | None:
    keeps = node.attributes.get("keeps_axes")
    return rank if keeps else _squeezed(node, rank, count) if keeps is False else None


def _gathered(node: Node, rank: int, _: Counts) -> int | None:
    indices = node.source(1).rank
    return None if indices is None else rank + indices - 1 - int(node.attributes.get("batch_dims", 0))


def _common(node: Node, *_: object) -> int | None:
    """Return the rank of an If whose branches have the same one."""
    if "joins" not in node.attributes:
        return None
    ranks = {value.rank for value in node.inputs[1:] if value is not None}
    return ranks.pop() if len(ranks) == 1 else None


def _targeted(node: Node, _: int, count: Counts) -> int | None:
    return count(node.source(len(node.inputs) > 1))


_RULES: dict[str, Callable[[Node, int, Counts], int | None]] = {
    **dict.fromkeys(REDUCTIONS, _reduced),
    "Broadcast": _targeted,
    "ConstantOfShape": _targeted,
    "Flatten": lambda *_: 2,
    "Gather": _gathered,
    "If": _common,
    "Reshape": _targeted,
    "Squeeze": _squeezed,
    "Transpose": lambda _node, rank, _count: rank,
    "Unsqueeze": _unsqueezed,
}
