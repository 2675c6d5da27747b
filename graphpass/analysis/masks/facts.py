"""What a mask is made of: conditions on positions, inputs of the model, biases.

A mask is followed back through what lays it out and joins it, up to what its numbers come from. Something on the way
that is not known makes the whole answer unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from graphpass.analysis.masks.comparisons import Comparison, bound_of_positions, compared_positions
from graphpass.analysis.masks.constants import LARGEST_MASK, band_of, seen_in
from graphpass.ir.cache import MaskPart
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.ports import MASKED_BELOW
from graphpass.ir.values import KEEPS_ORDER, held_constant, one_number

if TYPE_CHECKING:
    import numpy

__all__ = [
    "MASK_PARTS",
    "WRITES",
    "MaskFacts",
    "added_bias",
    "added_terms",
    "alibi_operands",
    "counts_up",
    "is_exposed_alibi",
    "mask_facts",
    "unbounded",
]

#: In the order in which they are told.
MASK_PARTS: tuple[MaskPart, ...] = ("causal", "input", "lengths", "alibi", "bias")

#: Operators whose first input is laid out differently, or some of it taken; the others say how.
_LAYOUT = frozenset(
    {"Broadcast", "Convert", "ConvertLike", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Pad"}
    | {
        "Reshape",
        "Slice",
        "Split",
        "Squeeze",
        "StridedSlice",
        "Tile",
        "Transpose",
        "Unsqueeze",
        "VariadicSplit",
        "ReverseSequence",
    }
)

#: Operators all of whose inputs their result is made of.
_JOINS = frozenset(
    {"Add", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "Concat", "Divide", "Equal", "Greater", "GreaterEqual", "If"}
    | {"GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessEqual", "LessOrEqual", "LogicalAnd", "LogicalNot", "LogicalOr"}
    | {"LogicalXor", "Maximum", "Max", "Minimum", "Min", "Multiply", "Negative", "NotEqual", "Select", "Subtract"}
)

#: Operators that write one tensor into another: the ports of both.
WRITES = {"ScatterNDUpdate": (0, 2), "ScatterElementsUpdate": (0, 2), "ScatterUpdate": (0, 2)}

#: Operators whose results hold no positions: sizes, and tensors filled with one number.
_PLAIN = frozenset({"ConstantOfShape", "ShapeOf"})


@dataclass(slots=True)
class MaskFacts:
    """What is known of a mask.

    Attributes:
        parts: What hides or weighs positions.
        windows: How many positions a query sees, itself included; one for each window found.
        unknown: Name of the first thing on the way that is not known; the parts are not all then.
    """

    parts: set[MaskPart] = field(default_factory=set)
    windows: set[int] = field(default_factory=set)
    unknown: str | None = None

    def add(self, other: MaskFacts) -> None:
        """Notes what is known of a further mask of the same attention."""
        self.parts |= other.parts
        self.windows |= other.windows
        self.unknown = self.unknown or other.unknown

    def add_bound(self, bound: int, name: str) -> None:
        """Notes that keys more than ``bound`` positions behind the query are told from the others."""
        if bound == 0:
            self.parts.add("causal")
        elif bound < -1:
            self.windows.add(-bound)
        else:
            # Only the query itself, or what lies behind it by some positions: no form that masks have.
            self.unknown = self.unknown or name


def mask_facts(graph: Graph, mask: Value) -> MaskFacts:
    """What ``mask`` is made of: a condition, or what is added to the scores."""
    facts = MaskFacts()
    pending, seen = [mask], set()
    while pending:
        value = pending.pop()
        if (value.node, value.port) in seen:
            continue
        seen.add((value.node, value.port))
        node = graph.producer(value)
        if node.op == "Trilu":
            _add_trilu(graph, node, facts)
        elif node.op == "Parameter":
            facts.parts.add("input")
        elif node.op == "Constant":
            _add_constant(graph, value, facts)
        elif (comparison := compared_positions(graph, value)) is not None:
            _add_comparison(graph, comparison, node.name, facts)
        elif alibi_operands(graph, node) is not None:
            facts.parts.add("alibi")
        elif _is_table(graph, node):
            facts.parts.add("bias")
        elif (sources := _sources(node)) is not None:
            pending.extend(source for source in sources if source is not None)
        else:
            facts.unknown = facts.unknown or node.name
    return facts


def _sources(node: Node) -> tuple[Value | None, ...] | None:
    """The inputs of which ``node`` makes a mask; ``None`` where it does something else."""
    if node.op in _LAYOUT:
        return node.inputs[:1]
    if node.op in _JOINS:
        return node.inputs[1:] if node.op == "If" else node.inputs
    if node.op in WRITES:
        return tuple(node.inputs[port] for port in WRITES[node.op])
    return () if node.op in _PLAIN else None


def added_terms(graph: Graph, mask: Value) -> list[Value]:
    """What is added up in ``mask``, from the innermost operand on; a bound may keep the sum finite."""
    terms: list[Value] = []
    pending = [mask]
    while pending:
        value = pending.pop()
        total = graph.producer(unbounded(graph, value))
        if total.op == "Add":
            pending += [operand for operand in reversed(total.inputs) if operand is not None]
        else:
            terms.append(value)
    return terms


def unbounded(graph: Graph, value: Value) -> Value:
    """What ``value`` is but for the Maximum that keeps it from falling far below what counts as masked."""
    while (node := graph.producer(value)).op == "Maximum":
        for source, bound in (node.inputs, node.inputs[::-1]):
            held = held_constant(graph, bound)
            if source is not None and held is not None and (held <= MASKED_BELOW).all():
                value = source
                break
        else:
            return value
    return value


def added_bias(graph: Graph, mask: Value | None) -> Node | None:
    """What makes numbers in ``mask`` say more than whether a position is seen: ALiBi, a table of distances.

    ALiBi in the form that paged attention finds does not count.
    """
    pending, seen = [mask], set()
    while pending:
        value = pending.pop()
        node = graph.producer(value) if value is not None else None
        if node is None or value is None or node.index in seen or value.element_type == "boolean":
            continue
        seen.add(node.index)
        if node.op == "Select":
            pending.extend(
                branch for branch in node.inputs[1:] if branch is not None and not is_exposed_alibi(graph, branch)
            )
        elif node.op == "Constant":
            facts = MaskFacts()
            _add_constant(graph, value, facts)
            if "bias" in facts.parts:
                return node
        elif _is_table(graph, node) or alibi_operands(graph, node) is not None:
            return node
        elif (sources := _sources(node)) is not None:
            pending.extend(sources)
        elif node.op != "Parameter":
            return node
    return None


def _add_comparison(graph: Graph, comparison: Comparison, name: str, facts: MaskFacts) -> None:
    """Keys compared with the queries' positions, or with how many positions a sequence has."""
    queries = comparison.queries
    if _holds_positions(graph, queries):
        facts.add_bound(bound_of_positions(graph, comparison), name)
    elif queries.shape is None or len(queries.shape) < 3:
        # Positions of the queries, and lengths of the sequences of a batch, may both be [n, 1].
        facts.unknown = facts.unknown or name
    elif queries.shape[-2] == 1:
        facts.parts.add("lengths")
    else:
        facts.add_bound(bound_of_positions(graph, comparison), name)


def _add_trilu(graph: Graph, node: Node, facts: MaskFacts) -> None:
    """A triangle of ONNX's Trilu: of ones, or of what is added."""
    upper = next((attribute.i for attribute in node.native.attribute if attribute.name == "upper"), 1)
    offset = one_number(graph, node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] is not None else 0.0
    if offset is None:
        facts.unknown = facts.unknown or node.name
    else:
        facts.add_bound(int(offset) - 1 if upper else int(offset), node.name)


def _add_constant(graph: Graph, value: Value, facts: MaskFacts) -> None:
    """A mask or a bias that is computed already; one number is what masked scores are set to."""
    sizes = [size for size in value.shape or () if size != 1]
    if value.shape is not None and not sizes:
        return
    try:
        constant = graph.constant(value, LARGEST_MASK)
    except FileNotFoundError:
        # A graph may be looked at without its weights.
        constant = None
    if constant is None:
        facts.unknown = facts.unknown or value.name
    elif (seen := seen_in(constant)) is None:
        facts.parts.add("bias")
    else:
        _add_pattern(seen, value.name, facts)


def _add_pattern(seen: numpy.ndarray, name: str, facts: MaskFacts) -> None:
    """A constant mask: all seen or nothing, the causal triangle, or the band of a window."""
    if seen.all() or not seen.any():
        return
    band = band_of(seen)
    if band is None:
        facts.unknown = facts.unknown or name
    else:
        facts.parts.add("causal")
        facts.windows |= {band[0]} if band[0] < seen.shape[-1] else set()


def alibi_operands(graph: Graph, node: Node) -> tuple[numpy.ndarray, Value] | None:
    """Slopes ``[heads]`` and positions, where ``node`` multiplies positions with a slope for each head."""
    for port in (0, 1) if node.op == "Multiply" else ():
        slopes, positions = node.inputs[port], node.inputs[1 - port]
        if slopes is None or positions is None:
            continue
        while graph.producer(slopes).op in _LAYOUT and graph.producer(slopes).inputs[0] is not None:
            slopes = graph.producer(slopes).inputs[0]
            assert slopes is not None
        constant = graph.constant(slopes)
        if constant is not None and constant.size > 1 and max(constant.shape) == constant.size:
            falls = (abs(constant).reshape(-1) > 0).all() and len(set(constant.reshape(-1).tolist())) == constant.size
            if falls and (_holds_positions(graph, positions) or counts_up(graph, positions)):
                return constant.reshape(-1), positions
    return None


def counts_up(graph: Graph, value: Value) -> bool:
    """Whether ``value`` is a constant that counts up along its last axis, as MPT keeps its positions: ``[.., n]``."""
    held = value
    while graph.producer(held).op in KEEPS_ORDER and (source := graph.producer(held).inputs[0]) is not None:
        held = source
    constant = graph.constant(held, LARGEST_MASK)
    if constant is None or value.shape is None or constant.size < 2 or value.shape[-1:] != (constant.size,):
        return False
    flat = constant.reshape(-1).astype("float64")
    return bool((flat[1:] - flat[:-1] == 1).all())


def is_exposed_alibi(graph: Graph, value: Value) -> bool:
    """Whether ``value`` is ALiBi as paged attention finds it in a Select: ``Reshape(Reshape(Multiply(slopes, .)))``."""
    for op in ("Reshape", "Reshape"):
        node = graph.producer(value)
        if node.op != op or node.inputs[0] is None:
            return False
        value = node.inputs[0]
    node = graph.producer(value)
    slopes = node.inputs[0] if node.op == "Multiply" else None
    return slopes is not None and graph.producer(slopes).op == "Constant" and alibi_operands(graph, node) is not None


def _holds_positions(graph: Graph, value: Value) -> bool:
    """Whether ``value`` counts positions: a range, or the running sum of an input's ones."""
    return any(node.op in {"Range", "CumSum"} for node in graph.backward([value], _counted))


def _counted(node: Node) -> tuple[Value | None, ...]:
    """What positions that ``node`` gives are computed from."""
    if node.op in _LAYOUT:
        return node.inputs[:1]
    return node.inputs if node.op in {"Add", "Subtract", "Multiply", "Negative", "Abs", "Select"} else ()


def _is_table(graph: Graph, node: Node) -> bool:
    """Whether ``node`` looks numbers up in a table of weights, as learned relative position biases are.

    A square may hold what a mask adds, row by row, so that its numbers have to tell.
    """
    if node.op != "Gather":
        return False
    table = node.inputs[0]
    while table is not None and graph.producer(table).op in {"Convert", "Identity", "Transpose", "Reshape"}:
        table = graph.producer(table).inputs[0]
    if table is None or graph.producer(table).op != "Constant" or len(node.inputs) < 2:
        return False
    index, sizes = node.inputs[1], table.shape or ()
    if len(sizes) > 1 and sizes[-1] == sizes[-2]:
        return False
    return index is not None and graph.producer(index).op != "Constant" and table.element_type in {"f16", "bf16", "f32"}
