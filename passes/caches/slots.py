"""Find KV caches to move and cut, their users, and the past's length."""

from __future__ import annotations

from typing import Literal

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.past import beam_gather
from graphpass.errors import PreconditionError, UnsupportedError
from graphpass.ir.cache import Cache
from graphpass.ir.graph import Graph, Node, Use, Value
from graphpass.ir.inputs import NEW_SLOTS, PAST_LENGTH, SOURCE_SLOTS
from graphpass.ir.model import Model
from graphpass.ir.operators import SLICES
from graphpass.ir.rewriter import Handle, Operand, Rewriter

#: Cut a cache by a Slice from 0, or as 2026.4.1's GPU plugin requires it, which is wrong on all other devices.
Trim = Literal["slice", "begin-one"]


def growing_caches(model: Model) -> tuple[Cache, ...]:
    """Return the KV caches of ``model``, all with all positions in order, the newest last.

    Raises:
        PreconditionError: GP319, the model has inputs that move or cut positions.
        UnsupportedError: GP365, a cache has a fixed capacity, or keeps no more than a window.
    """
    inventory = analyze_caches(model)
    caches = inventory.of_kind("kv")
    names = {port.name for port in model.inputs}
    if taken := sorted(names & {SOURCE_SLOTS, NEW_SLOTS, PAST_LENGTH}):
        raise PreconditionError("GP319", f"the model has the input {taken[0]} already")
    for cache in caches:
        reason = None
        if cache.axes.sequence is None:
            reason = "it is not known which axis its positions are on"
        elif cache.capacity is not None:
            reason = "its capacity is fixed: a mask or length makes its sequence shorter, no cut"
        elif cache.name in inventory.windowed:
            reason = "it keeps no more than a window, so that what was dropped cannot come back"
        if reason is not None:
            raise UnsupportedError("GP365", f"positions of cache {cache.name} cannot be moved or cut: {reason}")
    return caches


def trimmed(rewriter: Rewriter, past: Operand, length: Handle, axis: int, form: Trim, name: str) -> Handle:
    """Make the first ``length`` (i64 ``[1]``) positions of ``past`` along ``axis``."""
    if form == "slice":
        return rewriter.op("Slice", past, [0], length, [1], axes=[axis], name=name)
    # kv_cache_fusion.cpp of 2026.4.1 requires a constant of ones as its begin, and drops nothing there. It takes
    # the length from the ends by the Concat's axis as that is written, so that -2 would find another axis's end.
    free = [1] * axis + [0]
    ones, ends = [1] * (axis + 1), rewriter.op("Concat", *[length] * (axis + 1), axis=0, name=f"{name}/end")
    masks: dict[str, list[int]] = {"new_axis_mask": [], "shrink_axis_mask": [], "ellipsis_mask": []}
    return rewriter.op("StridedSlice", past, ones, ends, ones, begin_mask=free, end_mask=free, **masks, name=name)


def redirect_to_cut(
    rewriter: Rewriter, uses: list[Use], cut: Handle, past: Operand, length: Handle, axis: int, form: Trim
) -> None:
    """Let users of a past read ``cut``, and its shape as meant.

    A StridedSlice that begins at 1 has another: its ShapeOf gets the size along ``axis`` from ``length``.
    """
    for use in uses:
        if form == "slice" or use.node.op != "ShapeOf":
            rewriter.redirect(use.node, use.port, cut)
            continue
        name, kind = use.node.name, use.node.outputs[0].element_type
        size = rewriter.op("Convert", length, to=kind, name=f"{name}/length")
        whole = rewriter.op("ShapeOf", past, output_type=kind, name=f"{name}/past")
        shape = rewriter.op("ScatterUpdate", whole, [axis], size, axis=0, name=f"{name}/cut")
        rewriter.redirect_uses(use.node.outputs[0], shape)


def past_with_uses(graph: Graph, cache: Cache) -> tuple[Value, list[Use]]:
    """Return a cache's positions after its beam Gather, and all their users.

    Raises:
        PreconditionError: GP319, positions are cut there already.
    """
    read = graph.reads[cache.read]
    gather = beam_gather(graph, read.outputs[0])
    uses = [use for use in graph.uses(read.outputs[0]) if use.node != gather and use.node.op != "Result"]
    if gather is not None:
        uses += graph.uses(gather.outputs[0])
    kinds = {use.node.op for use in uses} - {"ShapeOf"}
    if kinds and kinds <= SLICES:
        raise PreconditionError("GP319", f"{read.name} is already cut to fewer positions")
    return (read if gather is None else gather).outputs[0], uses


def conversions(graph: Graph, value: Value) -> list[Node]:
    """Return the Converts of ``value`` if they alone read its elements, to one type.

    Plugins know a converted cache by a Convert directly after the ReadValue, before beams or slots are reordered.
    """
    nodes = [use.node for use in graph.uses(value) if use.node.op != "ShapeOf"]
    types = {node.outputs[0].element_type for node in nodes if node.outputs}
    return nodes if len(types) == 1 and all(node.op == "Convert" for node in nodes) else []
