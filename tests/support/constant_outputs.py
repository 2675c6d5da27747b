"""Constants in graphs of OpenVINO that are not a model yet, or no longer."""

from __future__ import annotations

import numpy
import openvino

from graphpass.analysis.symbolic import folding
from graphpass.dialects.openvino.graph import build
from graphpass.ir.graph import Graph, Value


def graph_upstream(output: openvino.Output) -> tuple[Graph, Value]:
    """A view of what lies upstream of ``output``, and ``output`` in it."""
    nodes, pending = {}, [output.get_node()]
    while pending:
        node = pending.pop()
        if node.get_name() not in nodes:
            nodes[node.get_name()] = node
            pending += [source.get_node() for source in node.input_values()]
    graph = build(openvino.Model([output], [node for node in nodes.values() if node.get_type_name() == "Parameter"]))
    return graph, next(graph.of_op("Result")).source()


def constant_of(output: openvino.Output) -> numpy.ndarray | None:
    """The constant that ``output`` is, if it is one; see `graphpass.analysis.symbolic.folding.fold`."""
    return folding.fold(*graph_upstream(output))
