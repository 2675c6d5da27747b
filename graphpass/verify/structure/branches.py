"""Symbolic definition of If: a choice between the results of its branches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Element, Elements, Rule, Steps
from graphpass.analysis.symbolic.expressions import Expr
from graphpass.analysis.symbolic.table import TABLE
from graphpass.verify.structure.model_tensors import ModelTensors

if TYPE_CHECKING:
    from graphpass.ir.graph import Node


def _if(element: Element) -> Steps:
    """Return an element of an If.

    Raises:
        UnknownError: A branch contains an operation without a definition, or states that outer sizes are equal.
    """
    if "joins" in element.node.attributes:
        return (yield from TABLE.elements["If"](element))
    tensors = element.elements
    assert isinstance(tensors, ModelTensors)
    return tensors.bodies.result(element.node, element.value, element.index)


def _size(elements: Elements, node: Node, axis: int) -> Expr | None:
    """Return a size of a result of an If in the view by `graphpass.ir.bodies.inlined`."""
    if "joins" not in node.attributes or node.source(0).rank:
        return None
    condition = ex.holds(elements.of(node.source(0), ()))
    return ex.choose(condition, *(elements.shape(node.source(branch))[axis] for branch in (1, 2)))


RULES: dict[str, Rule] = {"If": _if}
SIZES = {"If": _size}
