"""Replace Ifs of an OpenVINO model by one of their branches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from graphpass.dialects.openvino.rewriter import OpenVINORewriter

if TYPE_CHECKING:
    from graphpass.ir.graph import Node


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
