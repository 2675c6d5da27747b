"""The pass `drop-identities`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Graph, Node
from graphpass.ir.model import Model


@dataclass(frozen=True)
class DropIdentities(Pass[Model]):
    """Remove each Identity, except between an input and an output of the model.

    Plugins recognize a cache by the Concat that reads its past and that its present reads.

    Shapes:
        any

    Before:
        past -> Identity -> Concat(., new) -> Identity -> present
    After:
        past -> Concat(., new) -> present
    """

    name = "drop-identities"

    def run(self, model: Model) -> Done:
        graph = model.graph
        dropped = [node for node in graph.of_op("Identity") if not _connects_ports(graph, node)]
        if dropped:
            rewriter = model.rewriter()
            for node in dropped:
                rewriter.replace(node.outputs[0], rewriter.native(node.source()))
            rewriter.finish()
        return Done({"identities dropped": len(dropped)})


def copies(graph: Graph) -> Iterator[Node]:
    """Yield each Identity that the pass removes, without those of weights."""
    for node in graph.of_op("Identity"):
        if graph.producer(node.source()).op != "Constant" and not _connects_ports(graph, node):
            yield node


def _connects_ports(graph: Graph, node: Node) -> bool:
    reads_input = graph.producer(node.source()).op == "Parameter"
    return reads_input and any(use.node.op == "Result" for use in graph.uses(node.outputs[0]))
