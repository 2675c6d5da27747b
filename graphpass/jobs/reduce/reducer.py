"""Shrink a failing case: outputs, inputs, layers, single operators, constants and sizes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from graphpass.errors import GraphpassError
from graphpass.ir.text.statements import Statement
from graphpass.jobs.reduce import candidates
from graphpass.jobs.reduce.failing import Failing
from graphpass.jobs.reduce.oracle import Oracle
from graphpass.verify.evaluate import evaluate

if TYPE_CHECKING:
    from graphpass.runtime.sessions.inputs import Array


class Reducer:
    """Greedy search for the smallest case on which the pipeline still fails.

    Attributes:
        case: The smallest case so far.
        trials: Number of cases tried.
    """

    def __init__(self, case: Failing, oracle: Oracle, seconds: float, note: Callable[[str], None]) -> None:
        """Create a reducer.

        Args:
            case: A failing case.
            oracle: An oracle that has run ``case``.
            seconds: Time limit of the search.
            note: Receives a line after each step of the search.
        """
        self.case, self.trials = case, 0
        self._oracle, self._note = oracle, note
        self._end = time.monotonic() + seconds
        self._values = _values_of(case)

    def run(self) -> Failing:
        """Return the smallest case found within the time limit."""
        before = ""
        while before != (before := str(self.case)):
            for step in (self._ends, self._range, self._layers, self._operators, self._constants, self._sizes):
                if time.monotonic() < self._end:
                    step()
                    self._note(f"{step.__name__.strip('_')}: {self.case.nodes} nodes, {self.trials} trials")
        self._plain()
        return self.case

    def _keeps(self, case: Failing) -> bool:
        if time.monotonic() > self._end:
            return False
        self.trials += 1
        try:
            fails = self._oracle.failure(case) is not None
        except (GraphpassError, RuntimeError, ValueError, TypeError, KeyError, IndexError):
            return False  # the candidate is not a graph
        if fails:
            self.case = case
        return fails

    def _try(self, statements: candidates.Statements) -> bool:
        if len(statements) == len(self.case.statements) and str(statements) == str(self.case.statements):
            return False
        if all(statement.results for statement in statements):
            return False
        names = {statement.results[0] for statement in statements if statement.kind == "Parameter"}
        inputs = {name: array for name, array in {**self._values, **self.case.inputs}.items() if name in names}
        return self._keeps(replace(self.case, statements=statements, inputs=inputs))

    def _ends(self) -> None:
        ends = [index for index, statement in enumerate(self.case.statements) if not statement.results]
        for kept in reversed(ends):
            removed = [index for index in ends if index != kept]
            if removed and self._try(candidates.without_ends(self.case.statements, removed, self._values)):
                return
        self._chunks(
            lambda: [index for index, statement in enumerate(self.case.statements) if not statement.results],
            lambda chunk: candidates.without_ends(self.case.statements, chunk, self._values),
        )

    def _range(self) -> None:
        """Bisect for the smallest range of operators that fails."""
        indices = candidates.computing_operators(self.case.statements)
        low, high = 0, len(indices) - 1
        statements = self.case.statements
        while low < high:
            middle = (low + high) // 2
            if self._try(candidates.ending_at(statements, indices[middle])):
                high = middle
            else:
                low = middle + 1
        statements = self.case.statements
        indices = candidates.computing_operators(statements)
        low, high = 0, len(indices) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self._try(candidates.starting_at(statements, indices[middle], self._values)):
                low = middle
            else:
                high = middle - 1

    def _layers(self) -> None:
        """Replace values by upstream values, such as a layer's output by its input."""
        for result, other in candidates.bypasses(self.case.statements, self._values):
            made = {name for statement in self.case.statements for name in statement.results}
            if {result, other} <= made:
                self._try(candidates.bypass(self.case.statements, result, other))

    def _operators(self) -> None:
        self._chunks(
            lambda: candidates.computing_operators(self.case.statements),
            lambda chunk: candidates.cut(self.case.statements, chunk, self._values),
        )

    def _chunks(self, listed: Callable[[], list[int]], made: Callable[[list[int]], candidates.Statements]) -> None:
        """Try to remove halves of a list, then quarters, down to single entries."""
        size = len(listed()) // 2
        while size:
            start = 0
            while start < len(entries := listed()):
                if not self._try(made(entries[start : start + size])):
                    start += size
            size //= 2

    def _constants(self) -> None:
        for name in candidates.literals(self.case.statements):
            self._try(candidates.with_noise(self.case.statements, {name}))

    def _sizes(self) -> None:
        for case in self._resized():
            self._keeps(case)

    def _resized(self) -> Iterator[Failing]:
        for old in candidates.sizes(self.case.statements):
            for new in dict.fromkeys((1, 2, old // 2)):
                if new < old:
                    statements = candidates.resized(self.case.statements, old, new)
                    inputs = candidates.sliced(self.case.inputs, statements)
                    yield replace(self.case, statements=statements, inputs=inputs)

    def _plain(self) -> None:
        """Drop types, and replace inputs by noise, if the failure does not need them."""
        statements, sizes = candidates.with_named_sizes(self.case.statements, self.case.inputs)
        self._end += 5  # seconds, also if the search reached its time limit
        self._keeps(replace(self.case, statements=statements, sizes={**self.case.sizes, **sizes}))
        bare = tuple(
            statement if _is_source(statement) else replace(statement, types=()) for statement in self.case.statements
        )
        self._keeps(replace(self.case, statements=bare))
        if not self._keeps(replace(self.case, inputs={})):
            for name in list(self.case.inputs):
                self._keeps(replace(self.case, inputs={key: a for key, a in self.case.inputs.items() if key != name}))


def _is_source(statement: Statement) -> bool:
    return statement.kind in {"Constant", "Parameter", "ReadValue"}


def _values_of(case: Failing) -> dict[str, Array]:
    """Return all values of the graph by name; only inputs if it cannot be run."""
    taken = {statement.attributes["name"] for statement in case.statements if statement.kind == "Result"}
    shown: list[Statement] = []
    names: dict[str, str] = {}
    for statement in case.statements:
        for result in statement.results if statement.kind not in {"Constant", "Parameter"} else ():
            names[name := f"{result}.value" + "_" * (f"{result}.value" in taken)] = result
            shown.append(Statement((), "Result", (result,), {"name": name}))
    try:
        values = evaluate(replace(case, statements=(*case.statements, *shown)).model(), case.feeds)
    except (GraphpassError, RuntimeError, ValueError):
        return dict(case.feeds)
    return case.feeds | {names[name]: array for name, array in values.items() if name in names}
