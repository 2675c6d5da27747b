"""Find pasts of KV caches after the beam Gather, and uses of their shapes."""

from __future__ import annotations

from collections.abc import Iterator

from graphpass.ir.graph import Graph, Node, Use, Value

#: Axes of a cache ``[batch, heads, sequence, head_dim]`` that are swapped if the cache is stored transposed.
_SWAPPED = {2, 3}


def beam_gather(graph: Graph, value: Value) -> Node | None:
    """Return the Gather that reorders ``value`` by the input ``beam_idx``.

    Args:
        graph: The graph.
        value: Content of a cache before the step.

    Returns:
        The Gather; ``None`` without one.
    """
    beams = graph.parameters.get("beam_idx")
    gathers = (use.node for use in graph.uses(value) if use.node.op == "Gather" and use.port == 0)
    return next((node for node in gathers if beams is not None and node.inputs[1] == beams), None)


def past_of(graph: Graph, read: Node) -> Value:
    """Return the output of ``read``, or of the Gather by beam index that reads it.

    Args:
        graph: The graph.
        read: The Parameter or ReadValue of a cache.
    """
    return (beam_gather(graph, read.outputs[0]) or read).outputs[0]


def length_reads(graph: Graph, read: Node) -> Iterator[Use]:
    """Yield the uses of a cache's shape that read its sequence or head_dim size.

    Args:
        graph: The graph of ``read``.
        read: The ReadValue of a key or value, ``[batch, heads, sequence, head_dim]``.
    """
    for past in dict.fromkeys((read.outputs[0], past_of(graph, read))):
        for shape in graph.uses(past):
            for use in graph.uses(shape.node.outputs[0]) if shape.node.op == "ShapeOf" else ():
                if asked_axes(graph, use) & _SWAPPED:
                    yield use


def asked_axes(graph: Graph, use: Use) -> set[int]:
    """Return the axes of a shape of rank 4 that ``use`` reads; all if unknown.

    Args:
        graph: The graph.
        use: A use of the output of ShapeOf.
    """
    chosen = graph.constant(use.node.inputs[1]) if use.node.op == "Gather" and use.port == 0 else None
    return set(range(4)) if chosen is None else {int(axis) % 4 for axis in chosen.flat}
