"""Finds which tensors a model carries from one step to the next: past and present, by dataflow."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass

from graphpass.analysis.attention.find import OPERATORS, find_attention, is_computed
from graphpass.analysis.caches.growth import growth_of
from graphpass.ir.elementwise import POSITIONWISE
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.model import Model
from graphpass.ir.operators import INNER_CACHES, STATE_OPERATORS, inner_state

__all__ = [
    "INNER_CACHES",
    "PRODUCTS",
    "Pair",
    "appended",
    "find_pairs",
    "history_of",
    "is_stateful",
    "may_be_past",
    "same_tensor",
]

#: Operators that multiply with weights where one of their first two inputs is a weight.
PRODUCTS = frozenset({"MatMul", "Gemm", "MatMulNBits", "Conv", "Convolution", "GroupConvolution"})

#: Operators through which hidden states pass between products with weights, in loops and out of them.
_POSITIONWISE = POSITIONWISE | {"Carried", "Sliced", "Final"}

#: Operators through which no cache is updated.
_NO_CACHE_PASSES = frozenset({"ShapeOf", "Constant", "Softmax", "LogSoftmax"})

#: Operators that leave what a cache holds as it is, or only move, drop or convert whole positions of it.
_CARRIERS = frozenset(
    {"Convert", "Identity", "Gather", "ScatterElementsUpdate", "Slice", "StridedSlice", "Carried", "Final"}
)


@dataclass(frozen=True, slots=True)
class Pair:
    """A tensor carried from one step to the next.

    Attributes:
        past: What the step starts with: output of a Parameter or ReadValue, or what is chosen among that and its
            history (see `history_of`).
        present: What the next step starts with; ``None`` where nothing is written back.
        read: The Parameter or ReadValue.
        write: The Result or Assign; ``None`` where nothing is written back.
    """

    past: Value
    present: Value | None
    read: Node
    write: Node | None


def is_stateful(model: Model) -> bool:
    """Whether ``model`` holds variables."""
    return any(True for _ in model.graph.of_op("ReadValue"))


def find_pairs(model: Model) -> tuple[Pair, ...]:
    """All tensors that ``model`` carries, in the order of their reads.

    A stateful model's pairs are its variables. In a stateless model an output belongs to the input that reaches it
    through the fewest operators without passing a product with weights: layers are separated by such products, so a
    past never reaches the present of another layer. Names only break ties.
    """
    graph = model.graph
    # What attention makes is no updated cache, and a mask or a past reaches it on ways that would look like one.
    results = {(found.output.node, found.output.port) for found in model.analysis(find_attention)}
    return _variables(graph) + _inputs_and_outputs(model, results)


def _variables(graph: Graph) -> tuple[Pair, ...]:
    writes = {node.attributes["variable"]: node for node in graph.of_op("Assign")}
    pairs = []
    for read in graph.of_op("ReadValue"):
        write = writes.get(read.attributes["variable"])
        pairs.append(Pair(_start(graph, read), write.inputs[0] if write is not None else None, read, write))
    return tuple(pairs)


def _start(graph: Graph, read: Node) -> Value:
    """What a step starts with: the variable, or the state that is chosen among it and its history."""
    value = read.outputs[0]
    for op in ("Unsqueeze", "Concat"):
        following = [use.node for use in graph.uses(value) if use.node.op != "ShapeOf"]
        if len(following) != 1 or following[0].op != op:
            return read.outputs[0]
        value = following[0].outputs[0]
    if len(_joined(graph, value)) != 2:
        return read.outputs[0]
    chosen = [use.node.outputs[0] for use in graph.uses(value) if use.node.op == "Gather"]
    readers = [use.node for one in chosen for use in graph.uses(one)]
    starts = [node.outputs[0] for node in readers if node.op == "Squeeze"]
    return starts[0] if len(starts) == 1 else read.outputs[0]


def history_of(graph: Graph, pair: Pair) -> Node | None:
    """The variable whose earlier states that of ``pair`` holds, as `insert-snapshot` keeps them; else ``None``.

    A history is written from what variables held before the step alone: ``Gather(Concat(Unsqueeze(state), history))``.
    """
    value = pair.present
    while value is not None and graph.producer(value).op == "Gather":
        value = graph.producer(value).inputs[0]
    others = [read for read in _joined(graph, value) if read != pair.read]
    return others[0] if len(others) == 1 and pair.read in _joined(graph, value) else None


def _joined(graph: Graph, value: Value | None) -> list[Node]:
    """The variables of which a Concat of a state and a history is made."""
    if value is None or graph.producer(value).op != "Concat":
        return []
    sources = [graph.producer(source) for source in graph.producer(value).inputs if source is not None]
    first = sources[0].inputs[0] if sources[0].op == "Unsqueeze" else None
    reads = [graph.producer(first) if first is not None else sources[0], *sources[1:]]
    return reads if len(reads) == 2 and all(read.op == "ReadValue" for read in reads) else []


def _inputs_and_outputs(model: Model, barriers: set[tuple[int, int]]) -> tuple[Pair, ...]:
    graph = model.graph
    pasts = [node for node in graph.of_op("Parameter") if may_be_past(node.outputs[0])]
    parameters = [node for node in pasts if not _is_activation(graph, node.outputs[0])]
    named = {parameter.index: parameter for parameter in parameters}
    candidates = sorted(
        (distance, -_shared_words(named[past].name, result.name), past, result.index)
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


def _is_activation(graph: Graph, value: Value) -> bool:
    """Whether weights multiply ``value`` position by position: hidden states, which no step carries to the next."""
    pending, seen = [value], set()
    while pending:
        for use in graph.uses(pending.pop()):
            if use.node.op in {"MatMul", "Gemm", "MatMulNBits"} and use.port == 0:
                if not is_computed(graph, use.node.inputs[1]):
                    return True
            elif use.node.op in _POSITIONWISE and use.node.index not in seen:
                seen.add(use.node.index)
                pending.extend(use.node.outputs[:1])
    return False


def _is_residual(model: Model, pair: Pair) -> bool:
    """Whether the past is only added and scaled on its way to a present whose size is not fixed: one tensor a token."""
    assert pair.present is not None
    graph, sizes = model.graph, pair.present.shape
    if pair.present == pair.past or sizes is None or all(isinstance(size, int) for size in sizes[1:]):
        return False
    pending, seen, reached = [pair.present], set(), False
    while pending:
        value = pending.pop()
        if value == pair.past:
            reached = True
        node = graph.producer(value)
        if node.op in _POSITIONWISE and node.index not in seen:
            seen.add(node.index)
            # What a loop gives without any iteration says nothing of what an iteration does.
            sources = node.inputs[:1] if node.op == "Final" else node.inputs
            pending.extend(source for source in sources if source is not None)
    if not reached or not seen:
        return False
    # A state that decays is only added to and scaled, too, but keeps its size however many tokens come.
    return not {"fixed", "kept"}.issuperset(growth_of(model, pair.past, pair.present)[1:])


def may_be_past(value: Value) -> bool:
    """A past is at least a matrix per batch entry of real numbers, or of quantized ones; not ids and not a mask."""
    return (value.rank is None or value.rank >= 3) and value.element_type not in {"i64", "boolean", "string"}


def _fit(past: Value, present: Value | None) -> bool:
    """Whether types and shapes allow ``present`` to be the next step's ``past``."""
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
    """For each Parameter that reaches ``result`` without a product with weights, how many operators lie between."""
    found: dict[int, int] = {}
    pending = deque((value, 0) for value in result.inputs if value is not None)
    seen: set[tuple[int, int]] = set(barriers)
    while pending:
        value, distance = pending.popleft()
        if (value.node, value.port) in seen:
            continue
        seen.add((value.node, value.port))
        node = graph.producer(value)
        if node.op == "Parameter":
            found.setdefault(node.index, distance)
        for source in _data_inputs(graph, node, value):
            pending.append((source, distance + 1))
    return found


def _data_inputs(graph: Graph, node: Node, value: Value) -> list[Value]:
    """The inputs of ``node`` whose elements reach ``value``, one of its outputs; none of a product with weights."""
    if node.op in STATE_OPERATORS:
        state = inner_state(node, present=value)
        source = node.inputs[state.past] if state is not None and state.past < len(node.inputs) else None
        return [source] if source is not None else []
    if node.op in _NO_CACHE_PASSES or node.op in OPERATORS:
        return []
    if node.op in PRODUCTS and not all(is_computed(graph, source) for source in node.inputs[:2]):
        return []
    if node.op == "MatMul" and _is_softmax(graph, node.inputs[0]):
        return []
    return [source for source in node.inputs if source is not None]


def _is_softmax(graph: Graph, value: Value | None) -> bool:
    """Whether ``value`` is a Softmax, as it stands or converted: then a product with it is a result of attention."""
    while value is not None:
        node = graph.producer(value)
        if node.op == "Softmax":
            return True
        value = node.inputs[0] if node.op in {"Convert", "Identity", "Dropout"} else None
    return False


def same_tensor(graph: Graph, value: Value) -> Value:
    """``value`` traced back through operators that only move, drop or convert whole positions of a cache."""
    while True:
        node = graph.producer(value)
        if node.op not in _CARRIERS or node.inputs[0] is None:
            return value
        if node.op == "ScatterElementsUpdate" and not _only_moves(graph, node):
            return value
        value = node.inputs[0]


def _only_moves(graph: Graph, scatter: Node) -> bool:
    """Whether ``scatter`` writes into a cache what stood elsewhere in it, as reordering does."""
    origins = set()
    for value in (scatter.inputs[0], scatter.inputs[2]):
        while value is not None:
            node = graph.producer(value)
            if node.op not in _CARRIERS - {"ScatterElementsUpdate"} or node.inputs[0] is None:
                break
            value = node.inputs[0]
        origins.add(value)
    return len(origins) == 1


def appended(graph: Graph, pair: Pair) -> Node | None:
    """The Concat that appends new positions to the past and is written back as it is; ``None`` where there is none."""
    if pair.present is None:
        return None
    value = pair.present
    node = graph.producer(value)
    while node.op in {"Convert", "Identity", "Final"} and node.inputs[0] is not None:
        value = node.inputs[0]
        node = graph.producer(value)
    if node.op != "Concat" or len(node.inputs) != 2:
        return None
    sources = [same_tensor(graph, source) for source in node.inputs if source is not None]
    return node if pair.past in sources else None


def _shared_words(first: str, second: str) -> int:
    """How many words (runs of letters, runs of digits) two names share."""
    return len(set(re.findall(r"[A-Za-z]+|\d+", first)) & set(re.findall(r"[A-Za-z]+|\d+", second)))
