"""Count places in the cache as NPUW does, to expose windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.past import past_of
from graphpass.analysis.caches.places import are_known_places
from graphpass.analysis.lengths.proven import find_lengths
from graphpass.analysis.masks.comparisons import compared_positions
from graphpass.analysis.shapes.linear_size import Size
from graphpass.ir.constants import fold_scalar
from graphpass.ir.inputs import token_input
from graphpass.ir.operators import KEEPS_ORDER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from graphpass.analysis.masks.window import WindowMask
    from graphpass.analysis.shapes.sizes import Sizes
    from graphpass.dialects.openvino.model import OpenVINOModel
    from graphpass.ir.graph import Graph, Value
    from graphpass.ir.rewriter import Handle, Rewriter


@dataclass(frozen=True, slots=True)
class Places:
    """Values that imply how many places of a cache are in use.

    Attributes:
        past: The past of a cache, which may be reordered by beams.
        axis: Its axis of positions.
        tokens: The new tokens ``[batch, length, ..]``.
    """

    past: Value
    axis: int
    tokens: Value

    @classmethod
    def of(cls, model: OpenVINOModel) -> Places | None:
        """Return those of the first KV cache."""
        caches, tokens = analyze_caches(model).of_kind("kv"), token_input(model.graph)
        if not caches or tokens is None:
            return None
        read = model.graph.reads[caches[0].read]
        return cls(past_of(model.graph, read), caches[0].axes.sequence or 0, tokens)

    def write(self, rewriter: Rewriter) -> tuple[Handle, Handle]:
        """Make places of keys ``[1, 1, 1, sequence]`` and queries ``[1, 1, length, 1]``, as NPUW knows them.

        Its phi3_sliding_mask.cpp wants ranges from and to the length that a Gather takes of a cache, and an Unsqueeze
        for each axis.
        """
        write = rewriter.under("window")
        past, new = (
            write.op("Gather", write.op("ShapeOf", value), axis, axis=0, label=label)
            for value, axis, label in ((self.past, self.axis, "past"), (self.tokens, 1, "new"))
        )
        whole = write.op("Add", past, new, label="whole")
        made = []
        for start, axes, label in ((0, (0, 1, 2), "keys"), (past, (0, 1, 3), "queries")):
            places = write.op("Range", start, whole, 1, label=f"{label}_range")
            for axis in axes:
                places = rewriter.op("Unsqueeze", places, axis, name=f"window/{label}_{axis}")
            made.append(places)
        return made[0], made[1]


def count_places(model: OpenVINOModel, masks: Iterable[WindowMask]) -> int:
    """Let ``masks`` compare the places that NPUW knows; return the number of replaced values.

    ``masks`` are those that may be changed, in all their conditions; only those that compare the same places are.
    """
    graph = model.graph
    compared = dict.fromkeys(
        places for mask in masks for places in _compared(graph, mask) if not are_known_places(graph, *places)
    )
    known = Places.of(model) if compared else None
    if known is None:
        return 0
    sizes = find_lengths(model)
    past_shape, tokens_shape = sizes.shape(known.past), sizes.shape(known.tokens)
    if past_shape is None or tokens_shape is None:
        return 0
    past = past_shape[known.axis]
    whole = past + tokens_shape[1]
    both = [
        (keys, queries)
        for keys, queries in compared
        if _is_counted(graph, sizes, keys, Size(), whole) and _is_counted(graph, sizes, queries, past, whole)
    ]
    if not both:
        return 0
    rewriter = model.rewriter()
    new = known.write(rewriter)
    replaced = {old: made for places in both for old, made in zip(places, new, strict=True)}
    for old, made in replaced.items():
        rewriter.redirect_uses(old, made)
    rewriter.finish()
    return len(replaced)


def _compared(graph: Graph, mask: WindowMask) -> Iterator[tuple[Value, Value]]:
    yield mask.keys, mask.queries
    for other in mask.others:
        found = compared_positions(graph, other.value, holds=other.holds)
        if found is not None:
            yield found.keys, found.queries


def _is_counted(graph: Graph, sizes: Sizes, places: Value, start: Size, stop: Size) -> bool:
    if places.rank != 4 or places.element_type != "i64":
        return False
    moved, value = Size(), places
    while (node := graph.producer(graph.look_through(value, KEEPS_ORDER))).op == "Add":
        numbers = [(port, held[0]) for port in (0, 1) if (held := sizes.content(node.inputs[port])) and len(held) == 1]
        if len(numbers) != 1:
            return False
        ((port, number),) = numbers
        moved, value = moved + number, node.source(1 - port)
    if node.op != "Range" or fold_scalar(graph, node.inputs[2]) != 1:
        return False
    ends = [bound[0] + moved for port in (0, 1) if (bound := sizes.content(node.inputs[port])) and len(bound) == 1]
    return ends == [start, stop]
