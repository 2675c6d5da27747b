"""Find the tensors that a model carries from step to step, by dataflow."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from graphpass.analysis.attention.find import find_attention
from graphpass.analysis.attention.types import OPERATORS
from graphpass.analysis.caches.growth import growth_of
from graphpass.ir.graph import Graph, Node, Use, Value
from graphpass.ir.inputs import EMBEDDINGS
from graphpass.ir.model import Model
from graphpass.ir.operators import (
    CASTS,
    COMPRESSED_PRODUCTS,
    INNER_CACHES,
    LOOP_ENTRIES,
    LOOP_EXITS,
    MOVES,
    NO_DATA,
    POSITIONWISE,
    PRODUCTS,
    SLICES,
    STATE_OPERATORS,
    inner_state,
)
from graphpass.ir.values import is_activation

#: Operators on each position of hidden states, between products with weights, and entries and exits of loops.
_POSITIONWISE = POSITIONWISE | LOOP_ENTRIES | {"Final"}


#: Operators that only move, drop or convert whole positions of a cache.
MOVES_POSITIONS = CASTS | SLICES | {"Gather", "ScatterElementsUpdate", "Carried", "Final"}


@dataclass(frozen=True, slots=True)
class Pair:
    """A tensor carried from one step to the next.

    Attributes:
        past: The value before the step: output of a Parameter or ReadValue, or the state selected from a ReadValue and
            its history.
        present: The value after the step, written back; ``None`` if the tensor is only read.
        read: The Parameter or ReadValue.
        write: The Result or Assign; ``None`` if the tensor is only read.
    """

    past: Value
    present: Value | None
    read: Node
    write: Node | None


def is_stateful(model: Model) -> bool:
    """Return whether ``model`` has variables."""
    return any(True for _ in model.graph.of_op("ReadValue"))


def find_pairs(model: Model) -> tuple[Pair, ...]:
    """Return all tensors that ``model`` carries, in the order of their reads.

    The pairs of a stateful model are its variables. In a stateless model, an output belongs to the input with the
    shortest path to it. Paths through a product with weights are excluded, because these lead to other layers. Names
    only break ties.
    """
    graph = model.graph
    # A result of attention is not an updated cache, although paths lead to it from masks and pasts.
    results = {(block.output.node, block.output.port) for block in model.analysis(find_attention)}
    return _variables(graph) + _inputs_and_outputs(model, results)


def _variables(graph: Graph) -> tuple[Pair, ...]:
    writes = {node.attributes["variable"]: node for node in graph.of_op("Assign")}
    pairs = []
    for read in graph.of_op("ReadValue"):
        write = writes.get(read.attributes["variable"])
        pairs.append(Pair(_chosen_state(graph, read), write.inputs[0] if write is not None else None, read, write))
    return tuple(pairs)


def history_of(graph: Graph, pair: Pair) -> Node | None:
    """Return the variable whose earlier states ``pair`` stores, as written by `insert-snapshot`.

    Args:
        graph: The graph.
        pair: The carried tensor.

    Returns:
        Its ReadValue; ``None`` if ``pair`` is not a history.
    """
    reads = _joined_history(graph, pair.present)
    others = [read for read in reads if read != pair.read]
    return others[0] if len(others) == 1 and pair.read in reads else None


def _inputs_and_outputs(model: Model, barriers: set[tuple[int, int]]) -> tuple[Pair, ...]:
    graph = model.graph
    # A part of a model may return embeddings without a product with weights.
    inputs = (node for node in graph.of_op("Parameter") if node.name != EMBEDDINGS)
    pasts = [node for node in inputs if may_be_past(node.outputs[0])]
    parameters = [node for node in pasts if not _is_hidden_state(graph, node.outputs[0])]
    named = {parameter.index: parameter for parameter in parameters}
    candidates = sorted(
        (distance, -len(_words(named[past].name) & _words(result.name)), past, result.index)
        for result in graph.of_op("Result")
        for past, distance in _distances(graph, result, barriers).items()
        if past in named and _fit(named[past].outputs[0], result.inputs[0])
    )
    taken: dict[int, int] = {}
    written: set[int] = set()
    for _, _, past, present in candidates:
        if past not in taken and present not in written:
            taken[past] = present
            written.add(present)
    pairs = []
    for parameter in parameters:
        if parameter.index in taken:
            write = graph.nodes[taken[parameter.index]]
            pair = Pair(parameter.outputs[0], write.inputs[0], parameter, write)
            if not _is_residual(model, pair):
                pairs.append(pair)
    return tuple(pairs)


def _is_hidden_state(graph: Graph, value: Value) -> bool:
    """Return whether ``value`` is a hidden state: a product with weights reads each position.

    Hidden states are not carried between steps.
    """

    def weighs(use: Use) -> bool:
        return use.node.op in COMPRESSED_PRODUCTS | {"MatMul", "Gemm"} and use.port == 0

    uses = graph.forward([value], lambda use: use.node.outputs[:1] if use.node.op in _POSITIONWISE else ())
    return any(weighs(use) and not is_activation(graph, use.node.inputs[1]) for use in uses)


def _is_residual(model: Model, pair: Pair) -> bool:
    """Return whether the past is only added to and scaled, as a residual stream."""
    assert pair.present is not None
    graph, sizes = model.graph, pair.present.shape
    if pair.present == pair.past or sizes is None or all(isinstance(size, int) for size in sizes[1:]):
        return False

    def operands(node: Node) -> tuple[Value | None, ...]:
        # The second input of a Final is its value without iterations, which is not an update.
        return () if node.op not in _POSITIONWISE else node.inputs[:1] if node.op == "Final" else node.inputs

    upstream = {node.index for node in graph.backward([pair.present], operands)}
    if pair.past.node not in upstream or graph.producer(pair.present).op not in _POSITIONWISE:
        return False
    # A decaying state is only added to and scaled as well, but its size does not depend on the number of tokens.
    return not {"fixed", "kept"}.issuperset(growth_of(model, pair.past, pair.present)[1:])


def may_be_past(value: Value) -> bool:
    """Return whether rank and element type of ``value`` are possible for a past.

    Token ids and masks are excluded.
    """
    return (value.rank is None or value.rank >= 3) and value.element_type not in {"i64", "boolean", "string"}


def _fit(past: Value, present: Value | None) -> bool:
    if present is None:
        return False
    if "dynamic" not in {past.element_type, present.element_type} and past.element_type != present.element_type:
        return False
    if past.shape is None or present.shape is None:
        return True
    if len(past.shape) != len(present.shape):
        return False
    differing = [
        (old, new)
        for old, new in zip(past.shape, present.shape, strict=True)
        if isinstance(old, int) and isinstance(new, int) and old != new
    ]
    # With fixed sizes throughout, a cache grows by the number of new tokens along its sequence axis.
    return not differing or (len(differing) == 1 and differing[0][0] < differing[0][1])


def _distances(graph: Graph, result: Node, barriers: set[tuple[int, int]]) -> dict[int, int]:
    """Return the distance of each Parameter from ``result`` on paths without products with weights."""
    distances: dict[int, int] = {}
    pending = deque((value, 0) for value in result.sources)
    seen: set[tuple[int, int]] = set(barriers)
    while pending:
        value, distance = pending.popleft()
        if (value.node, value.port) in seen:
            continue
        seen.add((value.node, value.port))
        node = graph.producer(value)
        if node.op == "Parameter":
            distances.setdefault(node.index, distance)
        for source in _data_inputs(graph, node, value):
            pending.append((source, distance + 1))
    return distances


def _data_inputs(graph: Graph, node: Node, value: Value) -> list[Value]:
    """Return the inputs whose elements ``value`` contains; empty for products with weights."""
    if node.op in STATE_OPERATORS:
        state = inner_state(node, present=value)
        source = node.input(state.past) if state is not None else None
        return [source] if source is not None else []
    if node.op in NO_DATA | OPERATORS.keys() | {"Softmax", "LogSoftmax"}:
        return []
    if node.op in PRODUCTS and not all(is_activation(graph, source) for source in node.inputs[:2]):
        return []
    weights = graph.look_through(node.source(), CASTS | {"Dropout"}) if node.op == "MatMul" else value
    # A product with probabilities is a result of attention.
    return [] if graph.producer(weights).op == "Softmax" else [*node.sources]


def appended(graph: Graph, pair: Pair) -> Node | None:
    """Return the Concat that appends to the past and is written back.

    Args:
        graph: The graph.
        pair: The carried tensor.

    Returns:
        The Concat of the past and one new part; ``None`` if the present is computed otherwise.
    """
    if pair.present is None:
        return None
    node = graph.producer(graph.look_through(pair.present, CASTS | {"Final"}))
    if node.op != "Concat" or len(node.inputs) != 2:
        return None
    sources = [look_through_moves(graph, source) for source in node.sources]
    return node if pair.past in sources else None


def _words(name: str) -> set[str]:
    return set(re.findall(r"[A-Za-z]+|\d+", name))


def look_through_moves(graph: Graph, value: Value) -> Value:
    """Look through operators that move whole positions, upstream of ``value``.

    Args:
        graph: The graph.
        value: Content of a cache, for example a present.

    Returns:
        The first value that is not computed by such an operator.
    """
    ops = MOVES_POSITIONS - {"ScatterElementsUpdate"}

    def moves(node: Node) -> bool:
        # A reorder writes slots of a cache to other slots of the same cache.
        is_scatter = node.op == "ScatterElementsUpdate"
        ends = [graph.look_through(node.source(port), ops) for port in (0, 2)] if is_scatter else []
        return node.op in ops or (is_scatter and ends[0] == ends[1])

    return graph.look_through(value, moves)


def _chosen_state(graph: Graph, read: Node) -> Value:
    """Return the value of a variable, or the state selected from it and its history."""
    value = read.outputs[0]
    for op in ("Unsqueeze", "Concat"):
        following = [use.node for use in graph.uses(value) if use.node.op != "ShapeOf"]
        if len(following) != 1 or following[0].op != op:
            return read.outputs[0]
        value = following[0].outputs[0]
    if not _joined_history(graph, value):
        return read.outputs[0]
    chosen = [use.node.outputs[0] for use in graph.uses(value) if use.node.op == "Gather"]
    starts = [use.node.outputs[0] for value in chosen for use in graph.uses(value) if use.node.op == "Squeeze"]
    return starts[0] if len(starts) == 1 else read.outputs[0]


def _joined_history(graph: Graph, value: Value | None) -> list[Node]:
    """Return the variables of a state and its history that ``value`` concatenates."""
    node = graph.producer(graph.look_through(value, {"Gather"})) if value is not None else None
    if node is None or node.op != "Concat":
        return []
    state, *history = (graph.producer(source) for source in node.sources)
    reads = [graph.producer(graph.look_through(state.outputs[0], {"Unsqueeze"})), *history]
    return reads if len(reads) == 2 and all(read.op == "ReadValue" for read in reads) else []


#: Operators between an input and the Concat that appends to it, and between attention's operand and an output.
_INPUT_WAY, _OUTPUT_WAY = MOVES_POSITIONS | LOOP_ENTRIES, MOVES | LOOP_EXITS


def unpaired_ports(
    graph: Graph, pairs: tuple[Pair, ...], linear: Collection[str], operands: Collection[tuple[int, int]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of inputs and outputs that look like caches, but are not paired.

    Attention reads the input after a Concat, or the content of the output. Other unpaired ports have the type, the
    sizes and the users or producer of ``linear`` caches.

    Args:
        graph: The graph.
        pairs: The carried tensors.
        linear: Names of the reads of ``linear`` caches.
        operands: Keys and values of attention and their layouts, as node index and port.
    """
    reads = {pair.read.index for pair in pairs}
    writes = {pair.write.index for pair in pairs if pair.write is not None}
    carried = [pair for pair in pairs if pair.read.name in linear]
    entries = {entry for pair in carried for entry in _entries(graph, pair.past)}
    exits = {_exit(graph, pair.present) for pair in carried if pair.present is not None}

    def is_past(value: Value) -> bool:
        uses = graph.forward(
            [value], lambda use: use.node.outputs if use.node.op in _INPUT_WAY and use.port == 0 else ()
        )
        return (
            any(use.node.op == "Concat" and (use.node.index, 0) in operands for use in uses)
            or any(use.port == past for use in graph.uses(value) for past, _ in INNER_CACHES.get(use.node.op, ()))
            or not entries.isdisjoint(_entries(graph, value))
        )

    def is_present(value: Value) -> bool:
        content = graph.look_through(value, lambda node: node.op in _OUTPUT_WAY and (node.index, 0) not in operands)
        inner = INNER_CACHES.get(graph.producer(value).op, ())
        return (
            (content.node, content.port) in operands
            or any(value.port == present for _, present in inner)
            or _exit(graph, value) in exits
        )

    inputs = [node for node in graph.of_op("Parameter") if node.index not in reads and may_be_past(node.outputs[0])]
    outputs = [node for node in graph.of_op("Result") if node.index not in writes]
    return (
        tuple(node.name for node in inputs if is_past(node.outputs[0])),
        tuple(node.name for node in outputs if is_present(node.source())),
    )


def _sizes(value: Value) -> tuple[object, ...]:
    return (value.element_type, *(value.shape or ())[1:])


def _entries(graph: Graph, value: Value) -> set[tuple[object, ...]]:
    return {(_sizes(value), use.node.op, use.port) for use in graph.uses(value) if use.node.op != "ShapeOf"}


def _exit(graph: Graph, value: Value) -> tuple[object, ...]:
    return _sizes(value), graph.producer(value).op
