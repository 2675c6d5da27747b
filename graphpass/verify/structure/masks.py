"""Effective masks that are equal for every input are replaced by one condition."""

from __future__ import annotations

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.expressions import Expr
from graphpass.analysis.symbolic.solver import never
from graphpass.analysis.symbolic.step import unpadded
from graphpass.verify.masks import unlike_visible


class KnownMasks:
    """Effective masks seen so far, without duplicates."""

    def __init__(self) -> None:
        """Create an empty set of masks."""
        self._first: list[tuple[Expr, Expr]] = []
        self._known: dict[tuple[Expr, Expr], Expr] = {}

    def known(self, visible: Expr, key: Expr) -> Expr:
        """Return the first known mask that equals ``visible`` for every step and input.

        Queries of padded batches that attend to no key under the known mask are padding, and are ignored.

        Args:
            visible: The condition under which a query attends to a key.
            key: The index variable of the key.
        """
        request = visible, key
        if request not in self._known:
            equal = next((first for first, own in self._first if own is key and _are_equal(first, visible, key)), None)
            if equal is None:
                self._first.append(request)
            self._known[request] = visible if equal is None else equal
        return self._known[request]


def _are_equal(left: Expr, right: Expr, key: Expr) -> bool:
    """Return whether two masks are equal, for all queries of batches without padding."""
    if unlike_visible(left, right, key) != "never":
        return False
    return never(ex.negate(ex.equal(*map(unpadded, (left, right)))))
