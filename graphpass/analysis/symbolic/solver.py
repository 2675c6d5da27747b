"""Decide with z3 whether a condition is satisfiable over indices, lengths and inputs.

Inputs, tables, functions of real numbers, and comparisons of undefined numbers are uninterpreted functions. If z3's
model contradicts the actual value of a table or function, that value is added as a constraint and the search continues.
A satisfiable condition with opaque subexpressions is ``unknown``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from itertools import islice
from math import inf, isfinite, isnan
from typing import TYPE_CHECKING, Any, Literal

from graphpass.analysis.symbolic.constants import Table
from graphpass.analysis.symbolic.evaluate import value_at
from graphpass.analysis.symbolic.expressions import Expr, conjunction, is_summed, walk
from graphpass.analysis.symbolic.nodes import Monomial
from graphpass.analysis.symbolic.rounding import EXACT_UP_TO

if TYPE_CHECKING:
    import z3

#: z3's ``rlimit`` for one query, about 2 s; results do not depend on the machine's load.
_MOST_WORK = 8_000_000

#: z3's ``timeout`` for one query in milliseconds, for work that ``rlimit`` does not count.
_TIME_LIMIT = 20_000

#: Maximum number of rounds of one query that add actual values of tables and functions.
_MOST_LESSONS = 24

#: Longest row of a mask that is constructed from running sums.
_LONGEST_ROW = 1 << 16

#: Represents infinity; larger than every f64.
_INFINITE = Fraction(10**400)

#: Functions of real numbers.
_OF_REALS = frozenset({"apply", "compared"})

#: Maximum number of subexpressions of a condition that z3 gets.
_LARGEST = 2000


@dataclass(frozen=True, slots=True)
class Example:
    """An assignment that satisfies a condition, confirmed by evaluation.

    Attributes:
        values: Values of indices and lengths.
        inputs: Elements that the condition reads, by name of the input and index.
    """

    values: Mapping[Expr, int]
    inputs: Mapping[tuple[str, tuple[int, ...]], int | float | bool]


def example_of(condition: Expr) -> Example | Literal["never", "unknown"]:
    """Return an assignment that satisfies ``condition``; ``never`` if it is unsatisfiable.

    The result is ``unknown`` if the solver reaches a limit, or if it depends on opaque subexpressions.
    """
    parts = list(walk(condition))
    if condition.as_number is False:
        return "never"
    if len(parts) > _LARGEST:
        return "unknown"
    import z3

    # A new context for each query: results under ``rlimit`` depend on a context's earlier queries.
    context = z3.Context()
    problem = _Problem(parts, context)
    solver = z3.Solver(ctx=context)
    solver.set("timeout", _TIME_LIMIT)
    solver.set("rlimit", _MOST_WORK)
    solver.add(*problem.facts, problem.terms[condition])
    for _ in range(_MOST_LESSONS):
        answer = solver.check()
        if answer == z3.unsat:
            return "never"
        if answer != z3.sat or problem.has_free or any(part.op == "opaque" for part in parts):
            return "unknown"
        model = _smaller(solver, problem)
        lessons = problem.lessons(model)
        example = problem.example(model, condition) if not lessons else None
        if example is not None:
            return example
        if not lessons:
            return "unknown"
        solver.add(*lessons)
    return "unknown"


def never(*conditions: Expr) -> bool:
    """Return whether the conjunction of the conditions is proven unsatisfiable."""
    return example_of(conjunction(*conditions)) == "never"


def _smaller(solver: z3.Solver, problem: _Problem) -> z3.ModelRef:
    """Return a model with small lengths if one exists, else any model."""
    for bound, past in ((16, 16), (16, 1 << 20), (1 << 20, 1 << 20)):
        solver.push()
        solver.add(
            *(
                term <= (past if expr.args[0] == "past" else bound)
                for expr, term in problem.terms.items()
                if expr.op == "length"
            )
        )
        is_small = str(solver.check()) == "sat"
        model = solver.model() if is_small else None
        solver.pop()
        if model is not None:
            return model
    solver.check()
    return solver.model()


class _Problem:
    """The z3 terms of expressions, and constraints on them.

    Attributes:
        has_free: Whether operators without a definition here are replaced by any value.
    """

    def __init__(self, parts: Iterable[Expr], context: z3.Context) -> None:
        self._context = context
        self.terms: dict[Expr, Any] = {}
        self.facts: list[Any] = []
        self._functions: dict[Any, Any] = {}
        self.has_free = False
        for part in parts:
            self.terms[part] = self._term(part)
        self._add_sums()

    def _term(self, part: Expr) -> Any:
        import z3

        operands = [self.terms[arg] if isinstance(arg, Expr) else arg for arg in part.args] if part.op != "sum" else []
        if part.op == "number":
            return self._constant(part.sort, part.args[0])
        if part.op == "length":
            term = z3.Int(f"{part.args[0]} {len(self.terms)}", self._context)
            self.facts.append(term >= part.args[1])
            return term
        if part.op == "index":
            term = z3.Int(f"{part.args[0]} {len(self.terms)}", self._context)
            self.facts += [term >= 0, term < operands[1]]
            return term
        if part.op == "sum":
            return z3.Sum([self._monomial(*term) for term in part.args])
        if part.op in {"read", "apply", "compared", "opaque"}:
            return self._function(part, operands[0])(*[_real_or_int(part, term) for term in operands[1:]])
        if part.op == "running_sum":
            return z3.Int(f"sum {len(self.terms)}", self._context)
        if part.op == "product" and part.sort == "int":
            return operands[0] * operands[1]
        if part.op == "choose" and part.sort == "real":
            operands[1:] = [z3.ToReal(term) if term.is_int() else term for term in operands[1:]]
        if part.op not in _TERMS:
            self.has_free = True
            return z3.Const(f"free {len(self.terms)}", self._sorts[part.sort])
        return _TERMS[part.op](z3, *operands)

    def _monomial(self, atoms: Monomial, factor: int) -> Any:
        import z3

        return factor * z3.Product([self.terms[atom] for atom in atoms]) if atoms else self._constant("int", factor)

    def _constant(self, sort: str, value: Any) -> Any:
        import z3

        if sort == "bool":
            return z3.BoolVal(bool(value), self._context)
        if sort == "int":
            return z3.IntVal(int(value), self._context)
        finite = Fraction(value) if isfinite(value) else _INFINITE * (1 if value > 0 else -1)
        return z3.RealVal(finite, self._context)

    @cached_property
    def _sorts(self) -> dict[str, Any]:
        import z3

        context = self._context
        return {"int": z3.IntSort(context), "real": z3.RealSort(context), "bool": z3.BoolSort(context)}

    def _function(self, part: Expr, name: Any) -> Any:
        import z3

        key = (part.op, name, part.sort, len(part.args))
        if key not in self._functions:
            sorts = self._sorts
            domain = sorts["real" if part.op in _OF_REALS else "int"]
            own = z3.Function(f"{part.op} {len(self._functions)}", *[domain] * (len(part.args) - 1), sorts[part.sort])
            self._functions[key] = (
                own if len(part.args) > 1 else lambda: z3.Const(f"{part.op} {name}", sorts[part.sort])
            )
        return self._functions[key]

    def _add_sums(self) -> None:
        """Constrain running sums of 0 and 1 to grow by at most 1 per index."""
        sums = [part for part in self.terms if part.op == "running_sum"]
        bits = [part for part in self.terms if part.op == "read" and part.sort == "bool" and _is_free(part)]
        for part in sums:
            values = {leaf.as_number for leaf in part.args[0].args[1:]} if part.args[0].op == "choose" else set()
            if not values <= {0, 1} or not values:
                continue
            import z3

            term, upper = self.terms[part], self.terms[part.args[2]]
            self.facts += [term >= 0, term <= upper + 1]
            for bit in bits:
                self.facts.append(z3.Implies(z3.And(self.terms[bit], self.terms[bit.args[-1]] <= upper), term >= 1))
            for other in sums:
                if other is not part and other.args[:2] == part.args[:2]:
                    apart, places = self.terms[other] - term, self.terms[other.args[2]] - upper
                    self.facts.append(z3.Implies(places >= 0, z3.And(apart >= 0, apart <= places)))

    def example(self, model: z3.ModelRef, condition: Expr) -> Example | None:
        """Return the assignment of ``model`` if evaluating the condition confirms it."""
        values = {
            part: model.eval(term, model_completion=True).as_long()
            for part, term in self.terms.items()
            if part.op in {"length", "index"}
        }
        bound = set(filter(is_summed, values))
        numbers = {part: number for part, number in values.items() if part not in bound}
        for bits in (None, *self._rows(model)):
            inputs: dict[tuple[str, tuple[int, ...]], int | float | bool] = {}
            read = partial(self._read, model, bits, inputs)
            try:
                if value_at(condition, numbers, read):
                    return Example(numbers, inputs)
            except (KeyError, IndexError, ZeroDivisionError, OverflowError):
                continue
        return None

    def _read(
        self,
        model: z3.ModelRef,
        bits: set[int] | None,
        inputs: dict[tuple[str, tuple[int, ...]], int | float | bool],
        part: Expr,
        places: tuple[int, ...],
    ) -> int | float | bool:
        """Return an input's element in ``model``, or a mask's with ones at ``bits``."""
        term = self._function(part, part.args[0])(*places)
        own = _number(model.eval(term, model_completion=True))
        value = inputs[part.args[0], places] = places[-1] in bits if part.sort == "bool" and bits is not None else own
        return value

    def _rows(self, model: z3.ModelRef) -> Iterator[set[int]]:
        """Yield the indices of ones in rows whose running sums agree with ``model``."""

        def number_of(part: Expr) -> int:
            return int(model.eval(self.terms[part], model_completion=True).as_long())

        read = {
            number_of(part.args[-1]): _number(model.eval(term, model_completion=True))
            for part, term in self.terms.items()
            if part.op == "read" and part.sort == "bool" and part.args[1:] and _is_free(part)
        }
        for part in self.terms:
            if part.op == "running_sum" and number_of(part.args[2]) < _LONGEST_ROW:
                upper, ones = number_of(part.args[2]), {place for place, bit in read.items() if bit}
                others = (place for place in range(upper, -1, -1) if place not in read)
                yield ones | set(islice(others, max(number_of(part) - len(ones), 0)))

    def lessons(self, model: z3.ModelRef) -> list[Any]:
        """Return constraints with actual values of tables and functions that ``model`` contradicts."""
        collected = []
        for part, term in self.terms.items():
            is_table = part.op == "read" and isinstance(part.args[0], Table)
            if not is_table and part.op != "apply":
                continue
            places = [model.eval(self.terms[arg], model_completion=True) for arg in part.args[1:]]
            numbers = [_number(place) for place in places]
            try:
                right = value_at(_at_numbers(part, numbers), {}, _no_input)
            except (KeyError, IndexError, ZeroDivisionError, OverflowError, ValueError):
                continue
            if _number(model.eval(term, model_completion=True)) != right and not isnan(right):
                own = self._function(part, part.args[0])(*places)
                collected.append(own == self._constant(part.sort, right))
            if part.op == "apply" and part.args[0].startswith("round_"):
                limit = EXACT_UP_TO[part.args[0].removeprefix("round_")]
                operand = _real_or_int(part, self.terms[part.args[1]])
                import z3

                collected += [z3.Implies(z3.And(operand <= limit, operand >= -limit), term == operand)] * bool(
                    collected
                )
        return collected


def _is_free(part: Expr) -> bool:
    """Return whether the index of a read does not depend on a summation index."""
    return not any(map(is_summed, walk(*part.operands)))


def _no_input(part: Expr, places: tuple[int, ...]) -> int:
    raise KeyError(f"{part} at {places}")


def _at_numbers(part: Expr, numbers: Iterable[Any]) -> Expr:
    from graphpass.analysis.symbolic.expressions import make, number

    return make(part.op, (part.args[0], *map(number, numbers)), part.sort)


def _real_or_int(part: Expr, term: Any) -> Any:
    import z3

    return z3.ToReal(term) if part.op in _OF_REALS and term.is_int() else term


def _number(term: Any) -> int | float | bool:
    import z3

    if z3.is_bool(term):
        return bool(z3.is_true(term))
    if z3.is_int_value(term):
        return int(term.as_long())
    if not z3.is_rational_value(term):
        return float("nan")
    value = term.as_fraction()
    return float(value) if abs(value) < _INFINITE else inf if value > 0 else -inf


_TERMS: dict[str, Any] = {
    "real_sum": lambda z3, *terms: z3.Sum([_real(z3, term) for term in terms]),
    "product": lambda z3, left, right: _real(z3, left) * _real(z3, right),
    "quotient": lambda z3, left, right: _real(z3, left) / _real(z3, right),
    "floor_quotient": lambda _, left, right: left / right,
    "modulo": lambda _, left, right: left % right,
    "at_most": lambda z3, left, right: _real(z3, left) <= _real(z3, right),
    "not_positive": lambda _, term: term <= 0,
    "equal": lambda z3, left, right: _real(z3, left) == _real(z3, right),
    "zero": lambda _, term: term == 0,
    "not": lambda z3, term: z3.Not(term),
    "and": lambda z3, *terms: z3.And(*terms),
    "or": lambda z3, *terms: z3.Or(*terms),
    "choose": lambda z3, condition, then, otherwise: z3.If(condition, then, otherwise),
}


def _real(z3: Any, term: Any) -> Any:
    return z3.ToReal(term) if term.is_int() else term
