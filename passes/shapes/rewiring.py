"""Collect new inputs for nodes of a graph, and apply them later."""

from __future__ import annotations

from collections.abc import Iterator

from graphpass.ir.graph import Graph, Node, Use, Value


class Rewiring:
    """The edges of a graph after the collected changes."""

    def __init__(self, graph: Graph) -> None:
        """Start with the edges of ``graph``."""
        self.graph = graph
        self._sources: dict[tuple[int, int], Value] = {}
        self._uses: dict[tuple[int, int], list[Use]] = {}

    def source(self, node: Node, port: int = 0) -> Value:
        """Return an input of a node after the collected changes.

        Args:
            node: A node of the graph.
            port: Index of the input, which must not be omitted.
        """
        return self._sources.get((node.index, port)) or node.source(port)

    def uses(self, value: Value) -> list[Use]:
        """Return the uses of ``value``."""
        return self._uses.setdefault((value.node, value.port), list(self.graph.uses(value)))

    def move(self, use: Use, new: Value) -> None:
        """Redirect one use.

        Args:
            use: The input of a node to change.
            new: Its new source, of the same element type.
        """
        self.uses(self.source(use.node, use.port)).remove(use)
        self.uses(new).append(use)
        self._sources[use.node.index, use.port] = new

    def redirect(self, old: Value, new: Value) -> int:
        """Redirect users of a value except model outputs.

        Args:
            old: The present source of the users.
            new: Their new source, of the same element type.

        Returns:
            The number of redirected uses.
        """
        uses = [use for use in self.uses(old) if use.node.op != "Result"]
        for use in uses:
            self.move(use, new)
        return len(uses)

    def living(self) -> list[Node]:
        """Return the nodes that results depend on, in order."""
        alive = [node.op in {"Assign", "Result"} for node in self.graph.nodes]
        for node in reversed(self.graph.nodes):
            if alive[node.index]:
                for port, value in enumerate(node.inputs):
                    if value is not None:
                        alive[self.source(node, port).node] = True
        return [node for node in self.graph.nodes if alive[node.index]]

    def changed(self) -> Iterator[tuple[Node, int, Value]]:
        """Yield node, port and source of each changed input."""
        for node in self.living():
            for port in range(len(node.inputs)):
                if (node.index, port) in self._sources:
                    yield node, port, self._sources[node.index, port]


def downstream_of(graph: Graph, sources: set[int]) -> set[int]:
    """Return nodes and all that depend on them.

    Args:
        graph: The graph.
        sources: Indices of the nodes.
    """
    users = set(sources)
    for node in graph.nodes:
        if any(value.node in users for value in node.sources):
            users.add(node.index)
    return users
