"""Compare regions of chunks, so that equal layers are evaluated once."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass

from graphpass.analysis.equations.chunk_regions import Chunk, skips
from graphpass.analysis.symbolic.sizes import Sizes
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import SOURCES

#: Maximum number of elements of a constant in a region that is compared.
_LARGEST = 1 << 16


@dataclass(frozen=True)
class RegionForm:
    """The canonical form of a region, independent of names.

    Attributes:
        key: Equal for regions that compute the same function of the tensors that they read.
        values: The tensors that it reads and the outputs of its operators, in the same order for equal keys.
    """

    key: Hashable
    values: tuple[Value, ...]


def region_form(graph: Graph, sizes: Sizes, chunk: Chunk) -> RegionForm | None:
    """Return the form of a region; ``None`` with further inputs or large constants.

    Args:
        graph: The graph.
        sizes: Sizes of its tensors; equal regions read tensors of equal shapes.
        chunk: The region.
    """
    factors = (added.factor for added in skips(graph, chunk))
    leaves = {chunk.past: "past"} | dict.fromkeys((pad.source() for pad in chunk.entries), "entry")
    leaves |= dict.fromkeys(factors, "factor")
    ends = (chunk.present, *chunk.outputs)
    places: dict[Value, int] = {}
    parts: list[Hashable] = []
    # Operands first, since the order of nodes may differ between equal layers.
    pending = list(reversed(ends))
    while pending:
        value = pending[-1]
        node = graph.producer(value)
        operands = () if value in leaves or _has_known_sizes(sizes, node) else node.inputs
        missing = [operand for operand in operands if operand is not None and operand not in places]
        if value in places:
            pending.pop()
            continue
        if missing:
            pending += reversed(missing)
            continue
        content = (leaves[value], sizes.shape(value)) if value in leaves else _content(graph, sizes, node)
        if content is None:
            return None
        read = tuple(None if operand is None else places[operand] for operand in operands)
        types = tuple(output.element_type for output in node.outputs)
        parts.append((value.port, content, read, types))
        for output in [value] if value in leaves else node.outputs:
            places[output] = len(places)
    return RegionForm((*parts, tuple(places[value] for value in ends)), tuple(places))


def _has_known_sizes(sizes: Sizes, node: Node) -> bool:
    return node.op == "ShapeOf" and sizes.content(node.outputs[0]) is not None


def _content(graph: Graph, sizes: Sizes, node: Node) -> Hashable:
    """Return a key of the function that an operator computes; ``None`` if unknown."""
    if _has_known_sizes(sizes, node):
        return sizes.content(node.outputs[0])
    if node.op == "Constant":
        constant = graph.constant(node.outputs[0], _LARGEST)
        if constant is None:
            return None
        return constant.shape, constant.dtype.str, hashlib.sha256(constant.tobytes()).digest()
    return None if node.op in SOURCES else (node.op, repr(sorted(node.attributes.items())))
