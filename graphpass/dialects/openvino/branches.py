"""Replace Ifs of an OpenVINO model by one of their branches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from graphpass.dialects.openvino.rewriter import OpenVINORewriter

if TYPE_CHECKING:
    from graphpass.ir.graph import Node


def constant_branches(node: Node) -> dict[int, tuple[tuple[Any, int], ...]]:
    """Return the constant matrices that an If chooses from.

    Args:
        node: The If.

    Returns:
        By output, the matrix of the then branch and of the else branch, each with its number of rows. Outputs with
        another result are omitted.
    """
    found: dict[int, list[tuple[Any, int]]] = {}
    for number in (0, 1):
        results = node.native.get_function(number).get_results()
        for port in node.native.get_output_descriptions(number):
            made = results[port.body_value_index].input_value(0)
            if made.get_node().get_type_name() == "Constant" and len(made.get_shape()) == 2:
                found.setdefault(port.output_index, []).append((made, made.get_shape()[0]))
    return {port: tuple(tables) for port, tables in found.items() if len(tables) == 2}


def inline_branches(rewriter: OpenVINORewriter, decided: Iterable[tuple[Node, bool]]) -> None:
    """Replace Ifs of the main graph by one of their branches.

    Args:
        rewriter: The rewriter of the model.
        decided: Each If, and its condition: ``True`` selects the then branch, ``False`` the else branch.
    """
    for node, value in decided:
        chosen = 0 if value else 1
        body = node.native.get_function(chosen)
        for operator in body.get_ordered_ops():
            # Bodies of several Ifs may use the same names.
            operator.set_friendly_name(f"{node.name}/{operator.get_friendly_name()}")
        parameters, results = body.get_parameters(), body.get_results()
        for port in node.native.get_input_descriptions(chosen):
            parameters[port.body_parameter_index].output(0).replace(node.native.input_value(port.input_index))
        for port in node.native.get_output_descriptions(chosen):
            made = results[port.body_value_index].input_value(0)
            rewriter.replace(node.outputs[port.output_index], made)
