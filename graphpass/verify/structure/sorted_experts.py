"""Symbolic definition of experts that multiply slices of rows sorted by expert.

A slice and its product are defined for all rows, as if each row belonged to this expert. The Concat of the products
reads, for each row, the product of the row's own expert, so the other elements do not matter.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from graphpass.analysis.experts.routed import find_sorted_pieces
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.equal_sizes import as_dimension
from graphpass.analysis.symbolic.expressions import FALSE, TRUE, ZERO, Expr
from graphpass.ir.graph import Node, Value

if TYPE_CHECKING:
    from graphpass.analysis.symbolic.elements import Index, Request, Shapes
    from graphpass.ir.model import Model


class SortedExperts:
    """Elements and sizes of one model's expert products of sorted rows.

    Attributes:
        rows: The value with all rows, by index of the node that slices it or multiplies a slice.
        sizes: Number of rows of each expert, by dimension: for the last expert, all rows minus those of the others;
            for others ``None``, because it is free.
    """

    def __init__(self, model: Model, sizes: Shapes) -> None:
        """Find the expert products in ``model``, a model with sizes ``sizes``."""
        self._pieces, graph = model.analysis(find_sorted_pieces), model.graph
        self.rows: dict[int, Value] = {}
        self.sizes: dict[Expr, Expr | None] = {}
        for place, experts in self._pieces.joins.items():
            products = [graph.producer(product) for product in graph.nodes[place].sources]
            cuts = [graph.producer(product.source()) for product in products]
            for product, cut in zip(products, cuts, strict=True):
                self.rows |= {product.index: cut.source(), cut.index: cut.source()}
            values = graph.producer(experts).source(), *(product.outputs[0] for product in products)
            counts = [shape[0] for value in values if (shape := sizes.shape(value))]
            if len(counts) == len(values) and as_dimension(counts[-1]) is not None:
                whole, *others, last = counts
                self.sizes |= dict.fromkeys(others) | {last: ex.subtract(whole, ex.add(ZERO, *others))}

    def includes(self, node: Node) -> bool:
        """Return whether a node slices rows, multiplies a slice, or concatenates the products."""
        return node.index in self.rows or node.index in self._pieces.joins or node.index in self._pieces.cuts

    def element(self, node: Node, index: Index) -> Generator[Request, Expr, Expr] | None:
        """Return an element of a slice or of the Concat of products; otherwise ``None``.

        Args:
            node: Any node of the model.
            index: Index into its output, one expression an axis.
        """
        if node.index in self._pieces.joins:
            return _of_experts(node, self._pieces.joins[node.index], index)
        if node.index in self._pieces.cuts:
            return _of_one_expert(node, *self._pieces.cuts[node.index], index)
        return None


def _of_experts(joined: Node, experts: Value, index: Index) -> Generator[Request, Expr, Expr]:
    """Return an element of the Concat: the product of a row with its expert's weight."""
    expert, result = (yield experts, index[:1]), ZERO
    for number, product in enumerate(joined.sources):
        is_chosen = ex.equal(expert, ex.number(number))
        result = ex.add(result, ex.choose(is_chosen, (yield product, index), ZERO))
    return result


def _of_one_expert(cut: Node, experts: Value, expert: int, index: Index) -> Generator[Request, Expr, Expr]:
    """Return an element of a slice as one of all rows, assuming the row's expert."""
    row, chosen = (yield cut.source(), index), (yield experts, index[:1])
    known = dict[Expr, Expr]()
    for condition in ex.walk(row):
        if condition.op == "zero":
            sides = ex.subtract(chosen, condition.args[0]), ex.add(chosen, condition.args[0])
            number = next((side.as_number for side in sides if side.as_number is not None), None)
            if number is not None:
                known[condition] = TRUE if number == expert else FALSE
    return ex.substitute(row, known)
