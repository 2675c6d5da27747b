"""Match subgraphs backward from a node, or report the first node that does not match.

A pattern is written as calls of operators; Python numbers match constants with one element:

>>> from graphpass.analysis.pattern import op, var
>>> x = var("x")
>>> silu = op.Multiply(x, op.Sigmoid(x))
>>> scaled = op.Divide(x, var("root")) | op.Multiply(x, var("root"))
>>> gelu = op.Multiply(op.Multiply(x, 0.5), op.Add(op.Erf(scaled), 1.0))

Operands of commutative operators match in both orders. ``a | b`` matches if either pattern does, ``a & b`` if both
match the same value. All occurrences of a variable must be the same value. `Pattern.match` returns a `Match` or a
`Miss`; passes, ``why`` and ``check`` print the same `Miss`.
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
"""Returns the reason that a value does not match; ``None`` if it matches."""

Reason: TypeAlias = "Callable[[Node], str]"
"""Returns the reason that a node is not the operator of a pattern, in place of the general message."""


@dataclass(frozen=True, slots=True)
class Match:
    """The values and nodes that a pattern matched.

    Attributes:
        node: The node at which the match starts.
        values: Value of each variable, by name.
        nodes: Nodes of the operators with a name, by name.
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
    """A subgraph with variables; see the module's docstring."""

    def match(self, graph: Graph, at: Node | Value, bindings: Match | None = None) -> Match | Miss:
        """Match backward from a value.

        Args:
            graph: The graph.
            at: The value, or the node whose first output is the value.
            bindings: A match whose variables and nodes are already bound.

        Returns:
            The match; otherwise the miss farthest upstream.
        """
        from graphpass.ir.graph import Node

        value, node = (at.outputs[0], at) if isinstance(at, Node) else (at, graph.producer(at))
        trace, start = _Trace(), _Bound() if bindings is None else _Bound(bindings.values, bindings.nodes)
        for bound in self.bind(graph, value, start, trace, 0):
            return Match(node, bound.values, bound.nodes)
        return trace.miss or Miss(node, f"{node.op} does not match")

    def require(self, graph: Graph, at: Node | Value, bindings: Match | None = None) -> Match:
        """Return the match at ``at``.

        Args:
            graph: The graph.
            at: See `match`.
            bindings: See `match`.

        Raises:
            MissError: The pattern does not match.
        """
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
        """Yield the bindings of each possible match at ``value``.

        Args:
            graph: The graph.
            value: The value to match.
            bound: Variables and nodes that are already bound.
            trace: Records the deepest miss.
            depth: Number of operators between ``value`` and the start of the match.
        """

    def where(self, check: Check) -> Pattern:
        """Return the pattern with an additional condition on its value."""
        return _Where(self, check)

    def __or__(self, other: Pattern) -> Pattern:
        return _Either((self, other))

    def __and__(self, other: Pattern) -> Pattern:
        return _Both(self, other)


def var(name: str = "") -> Pattern:
    """Return a pattern of any value; all occurrences of a name match the same value."""
    return _Variable(name)


def look_through(pattern: Pattern | float, ops: frozenset[str] = MOVES) -> Pattern:
    """Return a pattern that matches ``pattern`` at a value or upstream through ``ops``.

    Args:
        pattern: A pattern or number.
        ops: Operators that are skipped by their first input.
    """
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
        # Exports in f16 round the constants of the model's code.
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
            value, depth = node.inputs[0], depth + 1  # of several misses, the one furthest upstream is reported


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
    """A pattern of one operator.

    Attributes:
        kinds: The accepted operators.
        inputs: A pattern for each input; ``None`` for an omitted input.
        name: Key in `Match.nodes`; empty for none.
        attributes: Required values of attributes.
        port: The output of the node that must be the value; ``None`` for any.
        open_ended: Whether further inputs may follow.
        miss: Returns the message for another operator; ``None`` for the general message.
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
            return f"expected {' or '.join(self.kinds)}, got {node.op}"
        if self.port is not None and value.port != self.port:
            return f"output {value.port} of {node.op} is read, expected output {self.port}"
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
            name: Key in `Match.nodes`.
            port: The output of the node that must be the value; ``None`` for any.
            miss: Returns the message for another operator.
            attributes: Required values of attributes.
        """
        open_ended = bool(inputs) and inputs[-1] is ...
        wanted = tuple(
            None if operand is None else _pattern(operand) for operand in (inputs[:-1] if open_ended else inputs)
        )
        return _Operator(tuple(kinds.split("|")), wanted, name, attributes, port, open_ended, miss)


op = _Operators()


def _pattern(operand: Pattern | float) -> Pattern:
    return operand if isinstance(operand, Pattern) else _Number(float(operand))
