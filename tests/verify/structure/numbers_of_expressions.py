"""Evaluate elements of tensors in canonical form, with their definitions, for given inputs."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Mapping
from typing import Any

import numpy

from graphpass.analysis.symbolic.constants import Table
from graphpass.analysis.symbolic.evaluate import FUNCTIONS
from graphpass.analysis.symbolic.expressions import RELATIONS, Expr, walk
from graphpass.verify.structure.definition import Definition

#: Number read outside of a tensor, on which no result depends.
OUTSIDE = 777


class NoNumbersError(Exception):
    """An expression has no numbers: it is uninterpreted, or differs between devices."""


class Numbers:
    """Numbers of expressions for one set of inputs.

    Attributes:
        inputs: Arrays by name of the input.
        lengths: Sizes by length.
    """

    def __init__(self, inputs: Mapping[str, numpy.ndarray], lengths: Mapping[Expr, int]) -> None:
        self.inputs, self.lengths = inputs, lengths
        self._known: dict[tuple[Any, ...], Any] = {}
        self._indices: dict[Expr, tuple[Expr, ...]] = {}

    def of(self, expr: Expr, places: Mapping[Expr, int]) -> Any:
        """Return the number of an expression at values of its index variables."""
        if expr not in self._indices:
            self._indices[expr] = tuple({part for part in walk(expr) if part.op == "index"})
        key = expr, *((index, places[index]) for index in self._indices[expr] if index in places)
        if key not in self._known:
            self._known[key] = self._computed(expr, places)
        return self._known[key]

    def _computed(self, expr: Expr, places: Mapping[Expr, int]) -> Any:
        if expr.op in {"index", "length"}:
            known = places if expr.op == "index" else self.lengths
            assert expr in known, f"{expr.args} is free"
            return known[expr]
        if expr.op == "choose":
            return self.of(expr.args[1 if self.of(expr.args[0], places) else 2], places)
        if expr.op == "running_sum":
            body, bound, last = expr.args
            return sum(int(self.of(body, {**places, bound: place})) for place in range(self.of(last, places) + 1))
        if expr.op == "sum":
            return sum(factor * math.prod(self.of(atom, places) for atom in atoms) for atoms, factor in expr.args)
        values = [self.of(arg, places) if isinstance(arg, Expr) else arg for arg in expr.args]
        if expr.op == "read":
            return self._read(values[0], [int(place) for place in values[1:]])
        if expr.op == "apply":
            return 0.0 if values[0] == "vanish" else FUNCTIONS[values[0]](*values[1:])
        return _OPERATORS[expr.op](*values)

    def _read(self, source: object, places: list[int]) -> Any:
        if isinstance(source, Definition):
            return self._defined(source, places)
        array = source.elements if isinstance(source, Table) else self.inputs.get(source)
        if array is None:
            raise NoNumbersError(source)
        inside = all(0 <= place < size for place, size in zip(places, array.shape, strict=True))
        return array[tuple(places)].item() if inside else OUTSIDE

    def _defined(self, source: Definition, places: list[int]) -> Any:
        indices = {part for body in source.bodies for part in walk(body) if part.op == "index"}
        free = {index: places[_number(index)] for index in indices if str(index.args[0]).startswith("v")}
        bound = sorted((index for index in indices if str(index.args[0]).startswith("r")), key=_number)
        ranges = [range(self.of(index.args[1], {})) for index in bound]
        all_places = [{**free, **dict(zip(bound, own, strict=True))} for own in itertools.product(*ranges)]
        body = source.bodies[0]
        if source.kind == "terms":
            return self.of(body, free)
        if source.kind == "sum":
            return math.fsum(self.of(body, own) for own in all_places)
        if source.kind in {"ReduceMax", "ReduceMin"} and not source.parameters:
            return (max if source.kind == "ReduceMax" else min)(self.of(body, own) for own in all_places)
        if source.kind == "top":
            return self._position(source, [self.of(body, own) for own in all_places], places[-1])
        if source.kind == "softmax":
            scores = [self.of(body, own) if self.of(source.bodies[1], own) else -math.inf for own in all_places]
            powers = [math.exp(score - max(scores)) for score in scores]
            return powers[places[-1]] / math.fsum(powers)
        raise NoNumbersError(source.kind)

    def _position(self, source: Definition, elements: list[float], rank: int) -> int:
        is_largest, _, is_stable, _, size = source.parameters
        if not is_stable:
            raise NoNumbersError(source.kind)
        elements = elements * (self.of(size, {}) // len(elements))
        order = sorted(range(len(elements)), key=lambda place: -elements[place] if is_largest else elements[place])
        return order[rank]


def _number(index: Expr) -> int:
    return int(index.args[0][1:])


_OPERATORS: dict[str, Any] = {
    "number": lambda value: value,
    "real_sum": lambda *terms: math.fsum(terms),
    "product": operator.mul,
    "times": lambda *factors: math.prod(factors),
    "quotient": lambda left, right: float(numpy.float64(left) / numpy.float64(right)),
    "raise": lambda base, exponent: float(numpy.power(numpy.float64(base), exponent)),
    "floor_quotient": operator.floordiv,
    "modulo": operator.mod,
    "at_most": operator.le,
    "compared": lambda relation, left, right: RELATIONS[relation](left, right),
    "not_positive": lambda value: value <= 0,
    "zero": lambda value: value == 0,
    "equal": operator.eq,
    "not": operator.not_,
    "and": lambda *values: all(values),
    "or": lambda *values: any(values),
}
