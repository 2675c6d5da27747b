"""Trace keys and values of attention upstream to the model's inputs and variables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from graphpass.analysis.attention.axis_trace import (
    BHDL,
    BHLD,
    Labels,
    PathStep,
    TracedValue,
    TraceStep,
    before,
    trace_axes,
)
from graphpass.analysis.attention.find import find_attention
from graphpass.analysis.attention.operands import attention_operands
from graphpass.analysis.attention.softmax import score_products
from graphpass.analysis.attention.types import Attention
from graphpass.analysis.symbolic.sizes import Sizes, infer_sizes
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.model import Model
from graphpass.ir.operators import INNER_CACHES, SOURCES
from graphpass.progress import counting

#: Axes of keys and values of fused operators, by rank; rank 5 packs keys and values of MultiHeadAttention.
_OPERATOR_LABELS: dict[int, Labels] = {
    3: ("batch", "sequence", ("heads", "head_dim")),
    4: BHLD,
    5: ("batch", "sequence", "heads", "part", "head_dim"),
}

Role = Literal["key", "value"]


@dataclass(frozen=True, slots=True)
class Read:
    """A read of an input or variable by attention.

    Attributes:
        attention: The attention block.
        role: Operand of the attention.
        labels: Labels of the axes of the input or variable.
        path: Operators from the operand upstream to the input or variable.
    """

    attention: Attention
    role: Role
    labels: Labels
    path: tuple[PathStep, ...]

    def has(self, *kinds: str) -> bool:
        """Return whether the path has a step of one of these kinds."""
        return any(step.kind in kinds for step in self.path)


Reads = dict[int, tuple[Read, ...]]


def attention_reads(model: Model) -> Reads:
    """Return the reads of each Parameter and ReadValue by attention, by node index."""
    reads: Reads = {}
    sizes = model.analysis(infer_sizes)
    with counting("following attention", list(_starts(model)), "operands") as starts:
        for start in starts:
            for source, read in _follow(model.graph, sizes, start):
                reads[source.index] = (*reads.get(source.index, ()), read)
    return reads


Start = tuple[Attention, Role, Value, Labels]


def _starts(model: Model) -> Iterator[Start]:
    for operand in model.analysis(attention_operands):
        # Prefer the nearest value at which batch and heads are separate axes.
        apart = (place for place in operand.places if "rows" not in place[1])
        yield operand.attention, operand.role, *next(apart, operand.places[0])
    for attention in model.analysis(find_attention):
        yield from _operator_starts(attention)
        yield from _further_keys(model.graph, attention)


def _operator_starts(attention: Attention) -> Iterator[Start]:
    """Yield key and value of operators in `INNER_CACHES` whose past inputs are absent."""
    node = attention.node
    ports = INNER_CACHES.get(node.op, ())
    if not ports or any(past < len(node.inputs) and node.inputs[past] is not None for past, _ in ports):
        return
    roles: tuple[Role, Role] = ("key", "value")
    for role, value in zip(roles, (attention.key, attention.value), strict=True):
        if value is None and role == "value" and attention.key is not None and attention.key.rank == 5:
            value = attention.key
        if value is not None and value.rank in _OPERATOR_LABELS:
            yield attention, role, value, _OPERATOR_LABELS[value.rank]


def _further_keys(graph: Graph, attention: Attention) -> Iterator[Start]:
    """Yield the keys of scores that sum several products, as MLA's content and positions."""
    if attention.miss is None:
        return
    products = list(score_products(graph, attention.node.source()))
    for product in products if len(products) > 1 else ():
        key = product.inputs[1]
        if key is not None and key.rank == 4:
            yield attention, "key", key, BHLD if product.attributes["transpose_b"] else BHDL


def _follow(graph: Graph, sizes: Sizes, start: Start) -> Iterator[tuple[Node, Read]]:
    attention, role, value, labels = start

    def steps(place: TracedValue) -> Iterable[TraceStep]:
        node = graph.producer(place.value)
        if node.op in SOURCES or _is_far(node, place):
            return ()
        upstream = before(graph, place.value, place.labels, sizes)
        is_weighted = place.passed("weights")
        return (step for step in upstream if not is_weighted or step.passed is None or step.passed.kind != "weights")

    for place in trace_axes(TracedValue(value, labels), steps):
        node = graph.producer(place.value)
        if node.op in SOURCES:
            yield node, Read(attention, role, place.labels, place.path)


def _is_far(node: Node, place: TracedValue) -> bool:
    """Return whether ``node`` belongs to new keys and values, or to another layer.

    A latent cache is multiplied by weights after its Concat. An Add upstream of a product with weights is the residual
    stream, which leads to other layers. A second Concat along the sequence axis belongs to new keys and values.
    """
    if node.op == "Add":
        return place.passed("weights") and all(value.rank != 0 for value in node.sources)
    if node.op == "Concat":
        return sum(step.kind == "join" and step.labels == ("sequence",) for step in place.path) > 1
    return False
