"""Interpretation of inputs: lengths of the step, caches, and masks and positions of unpadded rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.kept_logits import kept_logits
from graphpass.analysis.caches.step_lengths import POSITIONS, known_lengths
from graphpass.analysis.symbolic.elements import Elements
from graphpass.analysis.symbolic.equal_sizes import as_dimension, dimensions
from graphpass.analysis.symbolic.expressions import ONE, TRUE, ZERO, Expr, number, substitute
from graphpass.analysis.symbolic.sizes import infer_exact_sizes, infer_sizes
from graphpass.analysis.symbolic.step import BATCH, PAST
from graphpass.analysis.symbolic.table import TABLE
from graphpass.ir.cache import Cache
from graphpass.ir.inputs import PAST_LENGTH
from graphpass.verify.structure.caches import SELECTORS
from graphpass.verify.structure.leaves import Inputs, Leaf
from graphpass.verify.structure.moves import Move, find_move, moves_slots

if TYPE_CHECKING:
    from graphpass.ir.model import Model


def read_inputs(model: Model, leaves: Mapping[int, Leaf], replaced: Mapping[Expr, Expr], *, unpadded: bool) -> Inputs:
    """Return the interpretation of a model's inputs.

    Args:
        model: The model.
        leaves: Leaves of caches, by index of the node that reads the cache.
        replaced: Lengths that differ from those of the step, such as an empty past.
        unpadded: Whether to assume rows without padding, with positions that continue the past.
    """
    inventory, parameters = analyze_caches(model).caches, model.graph.parameters
    lengths, bits = input_lengths(model, inventory)
    moves: dict[int, Move] = {}
    growing = {model.graph.reads[cache.read].index for cache in inventory if cache.kind == "kv"}
    if moves_slots(model):
        lengths, moves = moved_caches(model, inventory, lengths, SELECTORS)
        leaves = {
            node: replace(leaf, is_cut=node in moves)
            for node, leaf in leaves.items()
            if node in moves or node not in growing
        }
    # Sessions feed 0, which keeps the logits of all tokens.
    known: dict[int, Expr] = {parameters[name].node: ZERO for name in kept_logits(model.graph)}
    if unpadded:
        known |= {node: _one(model, node) for node in bits}
        positions = parameters.get(POSITIONS)
        if positions is not None and positions.rank == 2:
            known[positions.node] = PAST if growing else ZERO
    if moves and PAST_LENGTH in parameters:
        known[parameters[PAST_LENGTH].node] = PAST
    cuts = {move.after.node: move.before for move in moves.values()}
    if replaced:
        lengths = {dimension: substitute(length, replaced) for dimension, length in lengths.items()}
        known = {node: substitute(expr, replaced) for node, expr in known.items()}
    return Inputs(lengths, bits, leaves, known, cuts)


def _one(model: Model, node: int) -> Expr:
    return TRUE if model.graph.nodes[node].outputs[0].element_type == "boolean" else ONE


def input_lengths(model: Model, caches: Collection[Cache]) -> tuple[dict[Expr, Expr], frozenset[int]]:
    """Return `known_lengths`, limited to dimensions of inputs and caches; all caches have one batch size.

    Sizes of other values are derived from these, or unknown.

    Args:
        model: The model.
        caches: All of its caches.
    """
    graph, sizes = model.graph, model.analysis(infer_sizes)
    lengths, bits = known_lengths(model, caches)
    for cache in caches:
        shape = sizes.shape(graph.reads[cache.read].outputs[0]) if cache.read in graph.reads else None
        if shape and cache.axes.batch is not None and (rows := as_dimension(shape[cache.axes.batch])) is not None:
            lengths.setdefault(rows, BATCH)
    exact = model.analysis(infer_exact_sizes)
    sources = [*graph.parameters.values(), *(node.outputs[0] for node in graph.reads.values())]
    pairs = [
        (assumed, own)
        for value in sources
        for assumed, own in zip(sizes.shape(value) or (), exact.shape(value) or (), strict=True)
    ]
    known = {own: lengths[assumed] for assumed, own in pairs if as_dimension(own) is not None and assumed in lengths}
    terms = {dimension for _, own in pairs for dimension, _ in dimensions(own)}
    return {dimension: lengths[dimension] for dimension in terms & lengths.keys()} | known, bits


def moved_caches(
    model: Model, caches: Collection[Cache], lengths: Mapping[Expr, Expr], selectors: frozenset[str]
) -> tuple[dict[Expr, Expr], dict[int, Move]]:
    """Return lengths, and moves by index of the node that reads the cache.

    The size of a cache before its move is free. A cache that is not trimmed to the past has no move.

    Args:
        model: A model with inputs that move slots.
        caches: All of its caches; those of kind ``kv`` may move.
        lengths: Lengths by dimension.
        selectors: Inputs that may select rows of a cache before its move.
    """
    graph, sizes = model.graph, model.analysis(infer_exact_sizes)
    growing = [cache for cache in caches if cache.kind == "kv"]
    axes = [(graph.reads[cache.read].outputs[0], cache.axes.sequence) for cache in growing]
    slots = {as_dimension(shape[axis]) for value, axis in axes if axis is not None and (shape := sizes.shape(value))}
    known = {dimension: length for dimension, length in lengths.items() if dimension not in slots}
    elements, moves = Elements(graph, sizes, TABLE, known), dict[int, Move]()
    for cache in growing:
        move = find_move(model, cache, selectors)
        if move is None:
            continue
        end = elements.of(move.end, (number(move.place),))
        if end is not PAST and not (end.op == "read" and end.args[0] == PAST_LENGTH):
            continue
        moves[graph.reads[cache.read].index] = move
        shape, axis = sizes.shape(move.after), cache.axes.sequence
        if shape is not None and axis is not None and (own := as_dimension(shape[axis])) is not None:
            known[own] = PAST
    return known, moves
