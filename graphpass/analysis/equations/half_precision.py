"""Decide which nodes of a graph in f32 may compute in 16 bits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import COPIES, ELEMENTWISE, GATHERS, MOVES, NORMS, REDUCTIONS, SHAPE_READERS, SLICES, SPLITS
from graphpass.ir.values import REALS

#: Operators that amplify rounding of operands: small differences of large numbers, or ties.
_EXACT = frozenset({"ArgMax", "Cos", "Exp", "LogSoftmax", "Sin", "SoftPlus", "Softmax", "TopK"})

#: Operators whose results may exceed f16's range, or that sum many elements.
_WIDE = _EXACT | REDUCTIONS | {"CumSum", "Log", "LpNormalization", "Power", "Sqrt"}

#: Elementwise operators except norms, which compute in f32 internally.
_ELEMENTWISE = ELEMENTWISE - NORMS

#: Operators that compute in f32 only if all hidden-state operands are f32: residual sums, and appends to caches.
_JOINS = MOVES | COPIES | SLICES | SPLITS | {"Add", "Concat"}

#: Operators that must be f32 if their results must be exact.
_PASSED = _ELEMENTWISE | MOVES | COPIES | {"Concat"}

#: Operators that gather rows of a table of weights.
_TABLES = GATHERS | {"GatherBlockQuantized"}

Kind = Literal["constant", "step", "hidden"]
"""Origin of a value: constants only; positions, masks and lengths of the step; or tables, caches and float inputs."""


@dataclass(frozen=True, slots=True)
class HalfRules:
    """Constraints of a dialect and a model.

    Attributes:
        inputs: Returns the ports of a node's inputs that have 16 bits if it computes in that type.
        outputs: Returns the ports of its outputs that then have 16 bits.
        caches: Names of inputs that become 16 bits.
        kept: Names of outputs of caches that stay f32.
        largest: Largest finite number of the type of 16 bits.
    """

    inputs: Callable[[Node], Collection[int]]
    outputs: Callable[[Node], Collection[int]]
    caches: frozenset[str]
    kept: frozenset[str]
    largest: float


@dataclass(frozen=True, slots=True)
class HalfPrecision:
    """Nodes and values that may have 16 bits.

    Attributes:
        nodes: Indices of nodes that compute in the type of 16 bits.
        values: Values of f32 that become 16 bits, without constants.
        wide: Indices of nodes that compute with hidden states in f32.
        beyond: Values of f32 that do not depend on hidden states and may exceed the type's largest number.
    """

    nodes: frozenset[int]
    values: frozenset[Value]
    wide: frozenset[int]
    beyond: frozenset[Value]


def find_half_precision(graph: Graph, rules: HalfRules) -> HalfPrecision:
    """Decide which nodes compute in a type of 16 bits, f16 or bf16.

    Hidden states have 16 bits, downstream of embedding tables and caches. These stay f32:

    - values computed from positions, masks and lengths only, such as angles and biases
    - softmax and exponentials, with the sums, products and masks that they read
    - reductions, powers and roots, as of norms, with the elementwise operators downstream of them, up to a product or
      a sum with hidden states in 16 bits
    - states of recurrences
    - operators that do not support the type

    Args:
        graph: The model.
        rules: Limits of its dialect and caches.

    Returns:
        The nodes and values of 16 bits, and those that remain in f32.
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
            # A Convert from 16 bits to f32 is in the source model, and is kept.
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
    """Return whether results of ``node`` may exceed f16's range, squares included."""
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
    """Return indices of nodes that must be f32 for softmax, exponentials and states downstream."""
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
