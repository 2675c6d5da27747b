"""Decide which nodes of a graph in f32 may compute in 16 bits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import COPIES, ELEMENTWISE, GATHERS, MOVES, NORMS, REDUCTIONS, SHAPE_READERS, SLICES, SPLITS
from graphpass.ir.values import REALS

#: Small differences of large numbers matter to these, or ties do.
_EXACT = frozenset({"ArgMax", "Cos", "Exp", "LogSoftmax", "Sin", "SoftPlus", "Softmax", "TopK"})

#: Leave the range of f16, or sum many numbers.
_WIDE = _EXACT | REDUCTIONS | {"CumSum", "Log", "LpNormalization", "Power", "Sqrt"}

#: Norms compute in f32 inside, whatever their operands are.
_ELEMENTWISE = ELEMENTWISE - NORMS

#: Compute in f32 only if all that they join is f32: hidden states are sums, and caches joins, of old and new.
_JOINS = MOVES | COPIES | SLICES | SPLITS | {"Add", "Concat"}

#: Pass on numbers that have to be exact.
_PASSED = _ELEMENTWISE | MOVES | COPIES | {"Concat"}

#: Read tables of weights by index.
_TABLES = GATHERS | {"GatherBlockQuantized"}

Kind = Literal["constant", "step", "hidden"]
"""Origin of numbers: constants alone; positions, masks and lengths of the step; or tables, caches, and float inputs."""


@dataclass(frozen=True, slots=True)
class HalfRules:
    """Holds what a dialect and a model allow.

    Attributes:
        inputs: Returns the inputs of a node that are of 16 bits if it computes in that type.
        outputs: Returns its outputs that are so then.
        caches: Names of inputs that become so.
        kept: Names of outputs, of caches that stay f32.
        largest: The largest number of the type.
    """

    inputs: Callable[[Node], Collection[int]]
    outputs: Callable[[Node], Collection[int]]
    caches: frozenset[str]
    kept: frozenset[str]
    largest: float


@dataclass(frozen=True, slots=True)
class HalfPrecision:
    """Holds what may be of 16 bits.

    Attributes:
        nodes: Indices of nodes that compute in the type of 16 bits.
        values: Values, now f32, that become so; constants are not among them.
        wide: Indices of nodes that compute with hidden states in f32.
        beyond: Values of the step, now f32, that may hold finite numbers beyond the type's.
    """

    nodes: frozenset[int]
    values: frozenset[Value]
    wide: frozenset[int]
    beyond: frozenset[Value]


def find_half_precision(graph: Graph, rules: HalfRules) -> HalfPrecision:
    """Decide which nodes compute in a type of 16 bits, f16 or bf16.

    Hidden states do, from tables of embeddings and caches on. In f32 stay: all that is computed from positions, masks
    and lengths alone, as angles and biases are; softmax and exponentials, with the sums, products and masks that they
    read; reductions, powers and roots, as of norms, with the elementwise operators downstream of them, up to a product
    or a sum with hidden states in 16 bits; states of recurrences; operators without the type.

    Args:
        graph: The model.
        rules: Limits of its dialect and caches.
    """
    kinds = _kinds(graph)
    exact = _read_exactly(graph, kinds, rules.kept)
    half: set[int] = set()
    values = {
        node.outputs[0] for node in graph.of_op("Parameter") if node.name in rules.caches and _is_f32(node.outputs[0])
    }

    def halve(node: Node) -> None:
        half.add(node.index)
        values.update(node.outputs[port] for port in rules.outputs(node) if _is_f32(node.outputs[port]))

    for node in graph.nodes:
        if kinds[node.index] != "hidden" or node.op in {"Parameter", "Result"} | SHAPE_READERS or _is_wide(node):
            continue
        states = [value for value in _floats(node) if kinds[value.node] == "hidden"]
        wide = [value for value in states if value not in values]
        if node.op == "Convert":
            # One from 16 bits to f32 is the source's wish.
            stays = not _is_f32(node.outputs[0]) or node.source().element_type in REALS - {"f32"} or bool(wide)
        elif node.op in _JOINS:
            stays = bool(wide) and len(wide) == len(states)
        elif node.op in _ELEMENTWISE or not any(map(_is_f32, node.outputs)):
            stays = bool(wide)
        else:
            stays = False
        if not stays and node.index not in exact and rules.inputs(node):
            halve(node)
    for node in reversed(graph.nodes):
        if kinds[node.index] == "constant" and node.op != "Constant" and rules.outputs(node):
            uses = [use for value in node.outputs for use in graph.uses(value)]
            if uses and all(use.node.index in half and use.port in rules.inputs(use.node) for use in uses):
                halve(node)
    wide_nodes = (
        node.index
        for node in graph.nodes
        if kinds[node.index] == "hidden"
        and node.index not in half
        and node.op not in MOVES | {"Parameter"}
        and any(_is_f32(value) for value in node.outputs)
    )
    return HalfPrecision(
        frozenset(half), frozenset(values), frozenset(wide_nodes), _beyond(graph, kinds, rules.largest)
    )


def _is_wide(node: Node) -> bool:
    """Return whether results of ``node`` leave the range of f16, squares among them."""
    return node.op in _WIDE or (node.op == "Multiply" and node.inputs[0] == node.inputs[1])


def _kinds(graph: Graph) -> list[Kind]:
    kinds: list[Kind] = []
    for node in graph.nodes:
        sources = [kinds[value.node] for value in node.sources]
        kind: Kind = "step"
        if node.op == "Parameter":
            kind = "hidden" if node.outputs[0].element_type in REALS else "step"
        elif node.op == "Constant" or (sources and all(source == "constant" for source in sources)):
            kind = "constant"
        elif node.op in SHAPE_READERS:
            kind = "step"
        elif "hidden" in sources or _reads_table(node, kinds):
            kind = "hidden"
        kinds.append(kind)
    return kinds


def _reads_table(node: Node, kinds: list[Kind]) -> bool:
    is_table = node.op in _TABLES and kinds[node.source().node] == "constant"
    return is_table and node.outputs[0].element_type in REALS


def _read_exactly(graph: Graph, kinds: list[Kind], kept: frozenset[str]) -> set[int]:
    """Return nodes that must be f32 for softmax, exponentials and states downstream."""
    exact: set[int] = set()
    for node in reversed(graph.nodes):
        if node.op in _EXACT or node.index in exact or (node.op == "Result" and node.name in kept):
            makers = (graph.producer(value) for value in _floats(node) if kinds[value.node] == "hidden")
            exact |= {maker.index for maker in makers if maker.op in _PASSED or _reads_table(maker, kinds)}
    return exact


def _beyond(graph: Graph, kinds: list[Kind], largest: float) -> frozenset[Value]:
    beyond: set[Value] = set()
    for node in graph.nodes:
        if kinds[node.index] == "hidden":
            continue
        is_beyond = any(value in beyond for value in _floats(node))
        if node.op == "Constant" and _is_f32(node.outputs[0]):
            content = graph.constant(node.outputs[0])
            is_beyond = content is not None and _is_beyond(content, largest)
        elif node.op == "ConstantOfShape":
            is_beyond = _is_beyond(node.attributes["value"], largest)
        if is_beyond:
            beyond.update(filter(_is_f32, node.outputs))
    return frozenset(beyond)


def _is_beyond(content: Any, largest: float) -> bool:
    import numpy

    return bool((numpy.isfinite(content) & (numpy.abs(content) > largest)).any())


def _floats(node: Node) -> Iterator[Value]:
    return (value for value in node.sources if _is_f32(value))


def _is_f32(value: Value) -> bool:
    return value.element_type == "f32"
