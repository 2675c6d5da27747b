"""Layers of experts as the finders report them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphpass.analysis.experts.products import Expert
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import MissError
from graphpass.ir.operators import COPIES, KEEPS_ORDER
from graphpass.ir.values import fixed_size

#: Operators that lay numbers out in their order, and repeat them along further axes.
SPREAD = KEEPS_ORDER | COPIES


@dataclass(frozen=True, slots=True)
class Layer:
    """The experts of one layer.

    Attributes:
        name: Name of the operator that sorts out which tokens belong to which expert, or weighs their results.
        rows: ``[tokens, hidden]``.
        chosen: The experts of each token, ``[tokens, k]``.
        weights: Their weights, ``[tokens, k]``.
        experts: Each of them, or one that computes all in batched products.
        count: Number of experts.
        total: The sum of all weighted experts.
    """

    name: str
    rows: Value
    chosen: Value
    weights: Value
    experts: tuple[Expert, ...]
    count: int
    total: Value


def gathered_tokens(graph: Graph, rows: Value, index: Value) -> Value:
    """Return the tokens ``[tokens, hidden]`` that ``rows`` gathers at ``index``; raise `MissError` on others."""
    gather = graph.producer(graph.look_through(rows, {"Reshape"}))
    if gather.op != "Gather":
        raise MissError(gather, "it does not gather the rows of the experts' tokens")
    tokens, axis = gather.source(), gather.attributes.get("axis")
    if axis == 1 and graph.producer(tokens).op == "Unsqueeze":
        tokens, axis = graph.producer(tokens).source(), 0
    width = fixed_size(tokens, 1) if tokens.rank == 2 else None
    is_same = axis == 0 and graph.look_through(gather.source(1), KEEPS_ORDER) == index
    if not is_same or width is None or rows.rank != 2 or fixed_size(rows, 1) != width:
        raise MissError(gather, "it does not gather the rows of the experts' tokens")
    return tokens


def is_column(_graph: Graph, value: Value) -> str | None:
    """Check that ``value`` has one number for each row."""
    return None if value.rank == 2 and fixed_size(value, 1) == 1 else f"{value.name} is not a column"


def read_alike(anchor: Node, tokens: Sequence[Value], experts: Sequence[Expert]) -> Value:
    """Return the tokens that all experts read.

    Args:
        anchor: The operator that sorts out which tokens belong to which expert.
        tokens: Those of each expert.
        experts: The experts.

    Raises:
        MissError: They read different ones, or compute different things.
    """
    first, *others = set(tokens)
    if others or len({expert.form for expert in experts}) > 1:
        raise MissError(anchor, "its experts read different tokens, or compute different things")
    return first


def require_weights(graph: Graph, weights: Value, chosen: Value, result: Value) -> None:
    """Raise a `MissError` unless ``weights`` has one for each choice, of the type of ``result``."""
    if (weights.shape, weights.element_type) != (chosen.shape, result.element_type):
        raise MissError(graph.producer(weights), "it gives no weight for each choice, of the type of the tokens")
