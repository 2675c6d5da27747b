"""Layers of experts as the finders report them, and the body of one expert."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from graphpass.analysis.symbolic.folding import fold_elements
from graphpass.dialects.signature import signature
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import MissError
from graphpass.ir.operators import COPIES, KEEPS_ORDER
from graphpass.ir.values import fixed_size

#: Operators that lay numbers out in their order, and repeat them along further axes.
SPREAD = KEEPS_ORDER | COPIES

#: Experts of more operators are not looked at.
_LIMIT = 64

#: Operators on each element of a token alone.
_UNARY = frozenset({"Convert", "Gelu", "HSwish", "Mish", "Relu", "Sigmoid", "SoftPlus", "Swish", "Tanh"})
_BINARY = frozenset({"Add", "Multiply", "Subtract"})


@dataclass(frozen=True, slots=True)
class Weight:
    """A constant operand.

    Attributes:
        value: The operand.
        stored: The same before a conversion of its elements.
        columns: The columns of a product that it gives, from and to; ``None`` for all.
    """

    value: Value
    stored: Value
    columns: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One operator of an expert, on earlier steps, tokens (-1), or constants."""

    node: Node
    reads: tuple[int | Weight, ...]

    @property
    def form(self) -> tuple[object, ...]:
        """Operator, attributes and shapes, without the numbers of the weights."""
        reads = tuple(
            read if isinstance(read, int) else (read.stored.shape, read.stored.element_type, read.columns)
            for read in self.reads
        )
        return signature(self.node), reads


Operator = tuple["Node", tuple["Value | Weight", ...]]
"""An operator that computes a value for one expert, and its operands."""


@dataclass(frozen=True, slots=True)
class ExpertLayer:
    """The experts of one layer.

    Attributes:
        name: Name of the operator that sorts out which tokens belong to which expert.
        tokens: ``[tokens, hidden]``.
        chosen: The experts of each token, ``[tokens, k]``.
        weights: Their weights, ``[tokens, k]``.
        bodies: The steps of each expert, in the experts' order.
        total: The sum of all of them, ``[tokens, hidden]``.
    """

    name: str
    tokens: Value
    chosen: Value
    weights: Value
    bodies: tuple[tuple[Step, ...], ...]
    total: Value


def find_body(graph: Graph, end: Value, operator_of: Callable[[Value], Operator]) -> tuple[tuple[Step, ...], Value]:
    """Return one expert's steps, ordered by form alone, and the rows they start from.

    ``operator_of`` returns the operator that computes a value for this expert, or raises a `MissError`.

    Raises:
        MissError: The expert reads no rows that are gathered by one Gather, or has more than 64 steps.
    """
    places: dict[Value, int] = {}
    starts: list[Value] = []
    steps: list[Step] = []
    pending = [end]
    while pending:
        value = pending[-1]
        if value in places:
            pending.pop()
        elif graph.producer(graph.look_through(value, {"Reshape"})).op == "Gather":
            places[value] = -1
            starts.append(value)
        else:
            node, reads = operator_of(value)
            missing = [read for read in reads if not isinstance(read, Weight) and read not in places]
            pending += reversed(missing)
            if not missing:
                places[value] = len(steps)
                steps.append(Step(node, tuple(read if isinstance(read, Weight) else places[read] for read in reads)))
            if len(pending) > _LIMIT or len(steps) > _LIMIT:
                raise MissError(node, f"it is one of more than {_LIMIT} operators of an expert")
    if len(starts) != 1:
        raise MissError(graph.producer(end), f"it is computed of {len(starts)} gathered tensors, not of one")
    return tuple(steps), starts[0]


def plain_operator(graph: Graph, value: Value) -> Operator:
    """Return the producer of ``value``, if it computes tokens apart, with stackable constants.

    Raises:
        MissError: It does not.
    """
    node = graph.producer(value)
    reads = tuple(_weight(graph, one) or one for one in node.inputs if one is not None)
    weights = [read for read in reads if isinstance(read, Weight)]
    if node.op == "MatMul":
        is_plain = weights == list(reads[1:]) and weights[0].value.rank == 2 and not node.attributes["transpose_a"]
    elif node.op in _BINARY:
        width = fixed_size(node.outputs[0], 1)
        is_plain = len(weights) < len(reads) and all(one.value.shape == (width,) for one in weights)
    else:
        is_plain = node.op in _UNARY and len(reads) == 1 and not weights
    if not is_plain:
        raise MissError(node, f"{node.op} does not compute each token by itself, with constants that can be stacked")
    return node, reads


def _weight(graph: Graph, value: Value) -> Weight | None:
    node = graph.producer(value)
    stored = node.source() if node.op == "Convert" else value
    return Weight(value, stored) if graph.producer(stored).op == "Constant" else None


def gathered_tokens(graph: Graph, rows: Value, index: Value) -> Value:
    """Return the tokens ``[tokens, hidden]`` that ``rows`` gathers at ``index``; raise `MissError` on others."""
    gather = graph.producer(graph.look_through(rows, {"Reshape"}))
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
    return None if value.rank == 2 and fixed_size(value, 1) == 1 else f"{value.name} is no column"


def is_zero(graph: Graph, value: Value) -> bool:
    """Return whether ``value`` is 0 everywhere."""
    node = graph.producer(value)
    if node.op == "ConstantOfShape":
        return bool(node.attributes["value"] == 0)
    found = fold_elements(graph, value)
    return found is not None and not found.any()


def read_alike(anchor: Node, tokens: Iterable[Value], forms: Iterable[object]) -> Value:
    """Return the tokens that all experts read.

    Args:
        anchor: The operator that sorts out which tokens belong to which expert.
        tokens: Those of each expert.
        forms: Computation of each expert, but for the numbers in its weights.

    Raises:
        MissError: They read different ones, or compute different things.
    """
    first, *others = set(tokens)
    if others or len(set(forms)) > 1:
        raise MissError(anchor, "its experts read different tokens, or compute different things")
    return first


def form_of(body: Iterable[Step]) -> tuple[object, ...]:
    """Return the operators of an expert, but for the numbers in its weights."""
    return tuple(step.form for step in body)


def require_weights(graph: Graph, weights: Value, chosen: Value, result: Value) -> None:
    """Raise a `MissError` unless ``weights`` has one for each choice, of the type of ``result``."""
    if (weights.shape, weights.element_type) != (chosen.shape, result.element_type):
        raise MissError(graph.producer(weights), "it gives no weight for each choice, of the type of the tokens")
