"""Queries whose scores are all -inf, for which Softmax returns NaN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.analysis.attention.find import find_attention
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import UnknownError
from graphpass.analysis.symbolic.expressions import ONE, Expr
from graphpass.analysis.symbolic.solver import never
from graphpass.verify.structure.masks import KnownMasks

if TYPE_CHECKING:
    from graphpass.ir.model import Model


class UndefinedRows:
    """Effective masks with -inf that hide all keys of some queries.

    A finite number instead of -inf gives such queries finite weights. NaN would spread to other queries, because the
    product of its weight 0 and a value of NaN is NaN.
    """

    def __init__(self) -> None:
        """Create an empty set of masks."""
        self._masks = KnownMasks()
        self._of_reference = set[Expr]()
        self._hiding: dict[tuple[Expr, Expr, Expr], bool] = {}

    def add(self, visible: Expr, query: Expr, key: Expr) -> None:
        """Record a mask of the reference.

        Args:
            visible: The condition under which a query attends to a key.
            query: Index of the query.
            key: Index variable of the key.
        """
        if self._hides_all(visible, query, key):
            self._of_reference.add(self._known(visible, query, key))

    def check(self, visible: Expr, query: Expr, key: Expr) -> None:
        """Check that the reference has the same NaN as the candidate.

        Args:
            visible: See `add`.
            query: See `add`.
            key: See `add`.

        Raises:
            UnknownError: Results for some queries may be NaN in the candidate only.
        """
        if self._hides_all(visible, query, key) and self._known(visible, query, key) not in self._of_reference:
            raise UnknownError("queries that attend to no key are NaN, because it masks with -inf")

    def _known(self, visible: Expr, query: Expr, key: Expr) -> Expr:
        """Return the known mask for any query: operators have queries along different axes."""
        own = {query: ex.index("query", query.args[1])} if query.op == "index" else {}
        return self._masks.known(ex.substitute(visible, own), key)

    def _hides_all(self, visible: Expr, query: Expr, key: Expr) -> bool:
        """Return whether a query may attend to no key.

        A query that always attends to the first or last key, such as a sink, or to its own position is excluded.
        """
        request = visible, query, key
        if request not in self._hiding:
            last = ex.subtract(key.args[1], ONE)
            own = ex.add(query, ex.subtract(last, ex.subtract(query.args[1], ONE))) if query.op == "index" else last
            seen = (ex.substitute(visible, {key: place}) for place in (own, last, ex.ZERO))
            self._hiding[request] = not any(never(ex.negate(condition)) for condition in seen)
        return self._hiding[request]


def guarded_softmax(model: Model) -> frozenset[int]:
    """Return the indices of Softmax operators of attention whose NaN is replaced by 0."""
    return frozenset(attention.node.index for attention in find_attention(model) if attention.guarded)
