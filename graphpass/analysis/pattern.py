"""Match subgraphs backward from one node, or report the first node that breaks the pattern.

A pattern is written by calling operators; Python numbers stand for constants of one element:

>>> from graphpass.analysis.pattern import op, var
>>> x = var("x")
>>> silu = op.Multiply(x, op.Sigmoid(x))
>>> scaled = op.Divide(x, var("root")) | op.Multiply(x, var("root"))
>>> gelu = op.Multiply(op.Multiply(x, 0.5), op.Add(op.Erf(scaled), 1.0))

Operands of commutative operators match in both orders, ``a | b`` matches either, ``a & b`` both at one value, and a
variable that occurs twice must be one value. `Pattern.match` returns a `Match` or a `Miss`; passes, ``why`` and
``check`` print the same `Miss`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import Miss, MissError
from graphpass.ir.operators import MOVES

_COMMUTATIVE = frozenset(
    {"Add", "BitwiseAnd", "BitwiseOr", "Equal", "LogicalAnd", "LogicalOr", "Maximum", "Minimum", "Multiply", "NotEqual"}
)

Check: TypeAlias = "Callable[[Graph, Value], str | None]"
"""Return why a value does not fit; ``None`` if it does."""

Reason: TypeAlias = "Callable[[Node], str]"
"""Return why a node is not the operator that a pattern looks for, in place of the general words."""


@dataclass(frozen=True, slots=True)
class Match:
    """The values and nodes that a pattern matched.

    Attributes:
        node: The node at which the match began.
        values: The value of each variable, by its name.
        nodes: The operators that the pattern names.
    """

    node: Node
    values: Mapping[str, Value] = field(default_factory=dict)
    nodes: Mapping[str, Node] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Value:
        """Return the value of variable ``name``."""
        return self.values[name]


@dataclass(frozen=True, slots=True)
class _Bound:
    values: Mapping[str, Value] = field(default_factory=dict)
    nodes: Mapping[str, Node] = field(default_factory=dict)


class _Trace:
    def __init__(self) -> None:
        self.depth = -1
        self.miss: Miss | None = None

    def note(self, depth: int, node: Node, reason: str) -> None:
        if depth > self.depth:
            self.depth, self.miss = depth, Miss(node, reason)


class Pattern(ABC):
    """A subgraph to look for; see the module's docstring."""

    def match(self, graph: Graph, at: Node | Value, bindings: Match | None = None) -> Match | Miss:
        """Match backward from ``at``, a value or the first output of a node.

        Variables and nodes of the match ``bindings`` stay bound.
        """
        from graphpass.ir.graph import Node

        value, node = (at.outputs[0], at) if isinstance(at, Node) else (at, graph.producer(at))
        trace, start = _Trace(), _Bound() if bindings is None else _Bound(bindings.values, bindings.nodes)
        for bound in self.bind(graph, value, start, trace, 0):
            return Match(node, bound.values, bound.nodes)
        return trace.miss or Miss(node, f"{node.op} does not fit")

    def require(self, graph: Graph, at: Node | Value, bindings: Match | None = None) -> Match:
        """Return the match at ``at``, as `match`; raise `MissError` without one."""
        match = self.match(graph, at, bindings)
        if isinstance(match, Miss):
            raise MissError(match.node, match.reason)
        return match

    def find(self, graph: Graph) -> Iterator[Match]:
        """Yield the matches in ``graph``, in node order."""
        for node in graph.nodes:
            if node.outputs and isinstance(match := self.match(graph, node), Match):
                yield match

    @abstractmethod
    def bind(self, graph: Graph, value: Value, bound: _Bound, trace: _Trace, depth: int) -> Iterator[_Bound]:
        """Yield each way in which the pattern matches ``value``, and note misses in ``trace``."""

    def where(self, check: Check) -> Pattern:
        """Return the pattern with one more condition on its value."""
        return _Where(self, check)

    def __or__(self, other: Pattern) -> Pattern:
        return _Either((self, other))

    def __and__(self, other: Pattern) -> Pattern:
        return _Both(self, other)


def var(name: str = "") -> Pattern:
    """Match any value; one name binds all its occurrences to one value."""
    return _Variable(name)


def look_through(pattern: Pattern | float, ops: frozenset[str] = MOVES) -> Pattern:
    """Return ``pattern`` at a value or upstream of it, if nothing but ``ops`` lies between."""
    return _LookThrough(_pattern(pattern), ops)


@dataclass(frozen=True)
class _Variable(Pattern):
    name: str

    def bind(self, graph: Graph, value: Value, bound: _Bound, trace: _Trace, depth: int) -> Iterator[_Bound]:
        if not self.name:
            yield bound
        elif self.name not in bound.values:
            yield _Bound({**bound.values, self.name: value}, bound.nodes)
        elif bound.values[self.name] == value:
            yield bound
        else:
            trace.note(depth, graph.producer(value), f"{value.name} is not {bound.values[self.name].name}")


@dataclass(frozen=True)
class _Number(Pattern):
    number: float

    def bind(self, graph: Graph, value: Value, bound: _Bound, trace: _Trace, depth: int) -> Iterator[_Bound]:
        from graphpass.analysis.symbolic.folding import fold_scalar

        scalar = fold_scalar(graph, value)
        # Exports in f16 round the numbers that the model's code has.
        if scalar is not None and math.isclose(scalar, self.number, rel_tol=1e-3):
            yield bound
        else:
            trace.note(depth, graph.producer(value), f"{value.name} is not the number {self.number:g}")


@dataclass(frozen=True)
class _Either(Pattern):
    patterns: tuple[Pattern, ...]

    def bind(self, graph: Graph, value: Value, bound: _Bound, trace: _Trace, depth: int) -> Iterator[_Bound]:
        for pattern in self.patterns:
            yield from pattern.bind(graph, value, bound, trace, depth)

    def __or__(self, other: Pattern) -> Pattern:
        return _Either((*self.patterns, other))


@dataclass(frozen=True)
class _Both(Pattern):
    pattern: Pattern
    other: Pattern

    def bind(self, graph: Graph, value: Value, bound: _Bound, trace: _Trace, depth: int) -> Iterator[_Bound]:
        for way in self.pattern.bind(graph, value, bound, trace, depth):
            yield from self.other.bind(graph, value, way, trace, depth)


@dataclass(frozen=True)
class _LookThrough(Pattern):
    pattern: Pattern
    ops: frozenset[str]

    def bind(self, graph: Graph, value: Value, bound: _Bound, trace: _Trace, depth: int) -> Iterator[_Bound]:
        while True:
            yield from self.pattern.bind(graph, value, bound, trace, depth)
            node = graph.producer(value)
            if node.op not in self.ops or node.inputs[0] is None:
                return
            value, depth = node.inputs[0], depth + 1  # a miss further upstream is the deeper one


@dataclass(frozen=True)
class _Where(Pattern):
    pattern: Pattern
    check: Check

    def bind(self, graph: Graph, value: Value, bound: _Bound, trace: _Trace, depth: int) -> Iterator[_Bound]:
        for extended in self.pattern.bind(graph, value, bound, trace, depth):
            reason = self.check(graph, value)
            if reason is None:
                yield extended
            else:
                trace.note(depth, graph.producer(value), reason)


@dataclass(frozen=True)
class _Operator(Pattern):
    """One operator.

    Attributes:
        kinds: Its possible names.
        inputs: One pattern an input; ``None`` for an omitted one.
        name: Its key in `Match.nodes`.
        attributes: Values that attributes must have.
        port: The output that the value is; ``None`` for any.
        open_ended: Whether further inputs may follow.
        miss: Words for a node that is not this operator; ``None`` for general ones.
    """

    kinds: tuple[str, ...]
    inputs: tuple[Pattern | None, ...]
    name: str
    attributes: Mapping[str, Any]
    port: int | None
    open_ended: bool
    miss: Reason | None

    def bind(self, graph: Graph, value: Value, bound: _Bound, trace: _Trace, depth: int) -> Iterator[_Bound]:
        node = graph.producer(value)
        if reason := self._unlike(node, value):
            trace.note(depth, node, reason if self.miss is None else self.miss(node))
            return
        if self.name:
            bound = _Bound(bound.values, {**bound.nodes, self.name: node})
        yield from self._bind_inputs(graph, node.inputs, 0, bound, trace, depth + 1)
        if len(self.inputs) == 2 and node.op in _COMMUTATIVE:
            yield from self._bind_inputs(graph, node.inputs[::-1], 0, bound, trace, depth + 1)

    def _unlike(self, node: Node, value: Value) -> str | None:
        if node.op not in self.kinds:
            return f"{node.op} stands where {' or '.join(self.kinds)} is looked for"
        if self.port is not None and value.port != self.port:
            return f"output {value.port} of {node.op} is read, not output {self.port}"
        count = sum(value is not None for value in node.inputs)
        if len(node.inputs) < len(self.inputs) or (count > len(self.inputs) and not self.open_ended):
            return f"{node.op} has {count} inputs, not {len(self.inputs)}"
        for name, wanted in self.attributes.items():
            if (attribute := node.attributes.get(name)) != wanted:
                return f"{name} of {node.op} is {attribute}, not {wanted}"
        return None

    def _bind_inputs(
        self, graph: Graph, values: tuple[Value | None, ...], port: int, bound: _Bound, trace: _Trace, depth: int
    ) -> Iterator[_Bound]:
        if port == len(self.inputs):
            yield bound
            return
        pattern, value = self.inputs[port], values[port]
        if (pattern is None) != (value is None):
            return
        ways = iter((bound,)) if pattern is None or value is None else pattern.bind(graph, value, bound, trace, depth)
        for way in ways:
            yield from self._bind_inputs(graph, values, port + 1, way, trace, depth)


class _Operators:
    def __getattr__(self, kind: str) -> Callable[..., Pattern]:
        return lambda *inputs, **attributes: self(kind, *inputs, **attributes)

    def __call__(
        self,
        kinds: str,
        *inputs: Any,
        name: str = "",
        port: int | None = None,
        miss: Reason | None = None,
        **attributes: Any,
    ) -> Pattern:
        """Return a pattern of one operator.

        Args:
            kinds: The operator, or several separated by ``|``.
            inputs: Patterns or numbers; ``None`` for an omitted input; a last ``...`` allows further inputs.
            name: See `_Operator`, as for the others.
            port: The output that the value is.
            miss: Words for a node that is not this operator.
            attributes: Values that attributes must have.
        """
        open_ended = bool(inputs) and inputs[-1] is ...
        wanted = tuple(
            None if operand is None else _pattern(operand) for operand in (inputs[:-1] if open_ended else inputs)
        )
        return _Operator(tuple(kinds.split("|")), wanted, name, attributes, port, open_ended, miss)


op = _Operators()


def _pattern(operand: Pattern | float) -> Pattern:
    return operand if isinstance(operand, Pattern) else _Number(float(operand))
