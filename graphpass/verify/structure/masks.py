"""Conditions of visible keys: those that are equal for every input become one."""

from __future__ import annotations

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.expressions import Expr
from graphpass.analysis.symbolic.solver import example_of


class KnownMasks:
    """Conditions that occurred; an equal one is replaced by the first."""

    def __init__(self) -> None:
        """Begin with none."""
        self._first: list[tuple[Expr, Expr]] = []
        self._known: dict[tuple[Expr, Expr], Expr] = {}

    def known(self, visible: Expr, key: Expr) -> Expr:
        """Return the first condition that is equal to ``visible`` for every step and input.

        Queries that see no key in ``visible`` are padding and are left out.
        """
        request = visible, key
        if request not in self._known:
            equal = next((first for first, own in self._first if own is key and _are_equal(first, visible, key)), None)
            if equal is None:
                self._first.append(request)
            self._known[request] = visible if equal is None else equal
        return self._known[request]


def _are_equal(left: Expr, right: Expr, key: Expr) -> bool:
    if left is right:
        return True
    differs = ex.negate(ex.equal(left, right))
    if differs is ex.FALSE:
        return True
    if any(part.op in {"opaque", "times", "raise"} for part in ex.walk(differs)):
        return False
    seen = ex.substitute(left, {key: ex.index("other key", key.args[1])})
    return example_of(ex.conjunction(differs, seen)) == "never"
