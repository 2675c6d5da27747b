"""Lengths of the step that both models are compared in."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from graphpass.analysis.attention.mask import BATCH, PAST
from graphpass.analysis.caches.step_lengths import known_lengths
from graphpass.analysis.symbolic.elements import Elements
from graphpass.analysis.symbolic.equal_sizes import as_dimension, dimensions
from graphpass.analysis.symbolic.expressions import Expr, number
from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.analysis.symbolic.table import TABLE
from graphpass.ir.cache import Cache
from graphpass.ir.inputs import PAST_LENGTH
from graphpass.verify.structure.moves import Move, find_move

if TYPE_CHECKING:
    from graphpass.ir.model import Model


def input_lengths(model: Model, caches: Collection[Cache]) -> tuple[dict[Expr, Expr], frozenset[int]]:
    """Return `known_lengths` of inputs and caches alone; all caches have one number of rows.

    Sizes that operators make follow from these, or are not known.
    """
    graph, sizes = model.graph, model.analysis(infer_sizes)
    lengths, bits = known_lengths(model, caches)
    for cache in caches:
        shape = sizes.shape(graph.reads[cache.read].outputs[0]) if cache.read in graph.reads else None
        if shape and cache.axes.batch is not None and (rows := as_dimension(shape[cache.axes.batch])) is not None:
            lengths.setdefault(rows, BATCH)
    sources = [*graph.parameters.values(), *(node.outputs[0] for node in graph.reads.values())]
    own = {dimension for value in sources for size in sizes.shape(value) or () for dimension, _ in dimensions(size)}
    return {dimension: length for dimension, length in lengths.items() if dimension in own}, bits


def moved_caches(
    model: Model, caches: Collection[Cache], lengths: Mapping[Expr, Expr], selectors: frozenset[str]
) -> tuple[dict[Expr, Expr], dict[int, Move]]:
    """Return lengths, and moves by the node that reads a cache.

    Caches hold any number of slots until they are cut. One that is not cut to the past has no move.
    """
    graph, sizes = model.graph, model.analysis(infer_sizes)
    growing = [cache for cache in caches if cache.kind == "kv"]
    axes = [(graph.reads[cache.read].outputs[0], cache.axes.sequence) for cache in growing]
    slots = {as_dimension(shape[axis]) for value, axis in axes if axis is not None and (shape := sizes.shape(value))}
    known = {dimension: length for dimension, length in lengths.items() if dimension not in slots}
    elements, found = Elements(graph, sizes, TABLE, known), dict[int, Move]()
    for cache in growing:
        move = find_move(model, cache, selectors)
        if move is None:
            continue
        end = elements.of(move.end, (number(move.place),))
        if end is not PAST and not (end.op == "read" and end.args[0] == PAST_LENGTH):
            continue
        found[graph.reads[cache.read].index] = move
        shape, axis = sizes.shape(move.after), cache.axes.sequence
        if shape is not None and axis is not None and (own := as_dimension(shape[axis])) is not None:
            known[own] = PAST
    return known, found
