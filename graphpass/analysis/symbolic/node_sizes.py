"""Sizes of one operator's outputs, from operands as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from graphpass.analysis.symbolic.equal_sizes import Vector
from graphpass.analysis.symbolic.expressions import number
from graphpass.analysis.symbolic.operand_sizes import LARGEST, Inferred
from graphpass.analysis.symbolic.ranks import with_rank
from graphpass.analysis.symbolic.rounding import Array
from graphpass.analysis.symbolic.size_rules import SizeRules
from graphpass.ir.graph import Graph, Node, Value


class NodeSizes(SizeRules):
    """Sizes of one operator's outputs, given its operands as arrays."""

    def __init__(self, graph: Graph, operands: Mapping[Value, Array]) -> None:
        """Take sizes and integers from the operands.

        Args:
            graph: The graph.
            operands: Arrays by operand; unknown elements are masked.
        """
        super().__init__(graph, {}, proves=True)
        self._operands = {(value.node, value.port): array for value, array in operands.items()}
        self._shapes = {place: tuple(map(number, array.shape)) for place, array in self._operands.items()}

    def of_output(self, node: Node, value: Value) -> Vector | None:
        """Return the sizes of an output; ``None`` if any is unknown.

        Args:
            node: The operator, all of whose inputs are known as arrays.
            value: Its output, whose declared shape is used only if the operator does not determine the rank.
        """
        # Ranks that bodies declare may differ in this step.
        inputs = tuple(
            value and replace(value, shape=self._operands[value.node, value.port].shape) for value in node.inputs
        )
        ranked = with_rank(replace(node, inputs=inputs), replace(value, shape=None), self._count)
        ranked = ranked or with_rank(replace(node, inputs=inputs), value, self._count)
        shape = None if ranked is None else self._inferred(*ranked)
        known = tuple(size for size in shape or () if size is not None)
        return known if shape is not None and len(known) == len(shape) else None

    def integers(self, value: Value | None) -> Inferred:
        array = None if value is None else self._operands.get((value.node, value.port))
        if array is None or array.size > LARGEST or array.dtype.kind not in "iu":
            return None
        hidden, numbers = np.ma.getmaskarray(array).flat, np.ma.getdata(array).flat
        return tuple(None if is_hidden else number(int(own)) for own, is_hidden in zip(numbers, hidden, strict=True))
