"""Conditions of visible keys: those that are equal for every input become one."""

from __future__ import annotations

from graphpass.analysis.symbolic.expressions import Expr
from graphpass.verify.masks import unlike_visible


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
            equal = next(
                (first for first, own in self._first if own is key and unlike_visible(first, visible, key) == "never"),
                None,
            )
            if equal is None:
                self._first.append(request)
            self._known[request] = visible if equal is None else equal
        return self._known[request]
