"""Faults of whole layers, of the last product, and in bodies of loops."""

from __future__ import annotations

import itertools
from typing import Any

from graphpass.analysis.equations.activations import find_activations
from graphpass.ir.graph import Graph, Node
from graphpass.ir.model import Model
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.values import fixed_size
from graphpass.ir.writer import Writer
from mutants.faults import Edit, Found, _changed, _weighed, fault


def _residuals(model: Model) -> list[Node]:
    """Return the sums of the residual stream, two for each layer."""
    data = model.analysis(find_activations)
    sums = [node for node in model.graph.of_op("Add") if node.outputs[0].rank == 3]
    return [node for node in sums if all(value.node in data and value.rank == 3 for value in node.sources)]


@fault("a layer skipped")
def _(model: Model) -> Found:
    sums = _residuals(model)
    for before, after in itertools.pairwise(sums[1::2]):
        ends = before.index, after.index

        def edit(rewriter: Rewriter, write: Writer, graph: Graph, ends: tuple[int, int] = ends) -> None:
            before, after = (graph.nodes[index].outputs[0] for index in ends)
            rewriter.redirect_uses(after, rewriter.native(before))

        if before.outputs[0].shape == after.outputs[0].shape:
            yield after.name, edit


@fault("two tokens' logits exchanged")
def _(model: Model) -> Found:
    for node in model.graph.of_op("Result"):
        count = fixed_size(node.source(), -1)
        if node.name == "logits" and node.source().rank == 3 and count is not None and count > 5:
            order = [0, 1, 2, 4, 3, *range(5, count)]
            yield "logits", _changed((node, 0), lambda write, one, order=order: write.op("Gather", one, order, axis=2))


@fault("channels of a product's weight exchanged")
def _(model: Model) -> Found:
    for node, port in _weighed(model):
        size = fixed_size(node.outputs[0], -1)
        if size is not None and size > 2:
            axis = 1 - port if node.attributes["transpose_b" if port else "transpose_a"] else port
            order = [1, 0, *range(2, size)]

            def change(write: Writer, one: Any, order: list[int] = order, axis: int = axis) -> Any:
                return write.op("Gather", one, order, axis=axis)

            yield node.name, _changed((node, port), change)


def _in_body(index: int, kind: str) -> Edit:
    """Return the edit that doubles an operand of the first operator of a kind in a body."""

    def edit(rewriter: Rewriter, write: Writer, graph: Graph) -> None:
        from openvino import opset13

        body = graph.nodes[index].native.get_function()
        inner = next(op for op in body.get_ordered_ops() if op.get_type_name() == kind)
        own = inner.input_value(0)
        inner.input(0).replace_source_output(opset13.add(own, own).output(0))

    return edit


def _of_body(kind: str) -> None:
    """Register the fault of an operand in the body of one of OpenVINO's loops."""

    @fault(f"an operand of {kind} in a loop doubled")
    def _(model: Model) -> Found:
        for node in model.graph.of_op("Loop", "TensorIterator"):
            if hasattr(node.native, "get_function") and any(
                op.get_type_name() == kind for op in node.native.get_function().get_ops()
            ):
                yield node.name, _in_body(node.index, kind)


for _kind in ("Multiply", "Subtract", "ReduceSum"):
    _of_body(_kind)
