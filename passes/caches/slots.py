"""Find growing KV caches and their users, and cut caches to a length."""

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
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.writer import Handle, Operand

#: Operator that cuts a cache: a Slice, or the form of 2026.4.1's GPU plugin, incorrect on all other devices.
Trim = Literal["slice", "begin-one"]


def growing_caches(model: Model) -> tuple[Cache, ...]:
    """Return the KV caches of ``model`` if each stores all positions in order.

    Raises:
        PreconditionError: GP319, the model has inputs that move or cut positions.
        UnsupportedError: GP365, a cache has a fixed capacity or an unknown sequence axis, or stores only a window.
    """
    inventory = analyze_caches(model)
    caches = inventory.of_kind("kv")
    names = {port.name for port in model.inputs}
    if existing := sorted(names & {SOURCE_SLOTS, NEW_SLOTS, PAST_LENGTH}):
        raise PreconditionError("GP319", f"the model already has an input {existing[0]}")
    for cache in caches:
        reason = None
        if cache.axes.sequence is None:
            reason = "its sequence axis is unknown"
        elif cache.capacity is not None:
            reason = "its capacity is fixed: its length is set by a mask or an input, not by a cut"
        elif cache.name in inventory.windowed:
            reason = "it stores only a window, and dropped positions cannot be restored"
        if reason is not None:
            raise UnsupportedError("GP365", f"positions of cache {cache.name} cannot be moved or cut: {reason}")
    return caches


def trimmed(rewriter: Rewriter, past: Operand, length: Handle, axis: int, form: Trim, name: str) -> Handle:
    """Cut a past to its first positions.

    Args:
        rewriter: Rewriter of the model.
        past: The past, or a tensor of its slots.
        length: Number of positions, i64 [1].
        axis: Index of the sequence axis, not negative.
        form: The operator to write.
        name: Name of the result.

    Returns:
        The positions from 0 to ``length``, in the type of ``past``.
    """
    if form == "slice":
        return rewriter.op("Slice", past, [0], length, [1], axes=[axis], name=name)
    # kv_cache_fusion.cpp of 2026.4.1 requires a begin of constant ones, but does not drop the first position. It reads
    # the length at the index that the Concat's axis has: a negative axis would select the end of another axis.
    free = [1] * axis + [0]
    ones, ends = [1] * (axis + 1), rewriter.op("Concat", *[length] * (axis + 1), axis=0, name=f"{name}/end")
    masks: dict[str, list[int]] = {"new_axis_mask": [], "shrink_axis_mask": [], "ellipsis_mask": []}
    return rewriter.op("StridedSlice", past, ones, ends, ones, begin_mask=free, end_mask=free, **masks, name=name)


def redirect_to_cut(
    rewriter: Rewriter, uses: list[Use], cut: Handle, past: Operand, length: Handle, axis: int, form: Trim
) -> None:
    """Redirect users of a past, and users of its shape, to its cut.

    A StridedSlice that begins at 1 has one position less. Its shape is therefore written with ``length`` along
    ``axis``.

    Args:
        rewriter: Rewriter of the model.
        uses: Uses of the past.
        cut: The result of `trimmed`.
        past: The past.
        length: See `trimmed`.
        axis: See `trimmed`.
        form: See `trimmed`.
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
    """Return the past after its beam Gather, and its uses before and after the Gather.

    Args:
        graph: The graph of the model.
        cache: One of its caches.

    Raises:
        PreconditionError: GP319, the past is already cut.
    """
    read = graph.reads[cache.read]
    gather = beam_gather(graph, read.outputs[0])
    uses = [use for use in graph.uses(read.outputs[0]) if use.node != gather and use.node.op != "Result"]
    if gather is not None:
        uses += graph.uses(gather.outputs[0])
    operators = {use.node.op for use in uses} - {"ShapeOf"}
    if operators and operators <= SLICES:
        raise PreconditionError("GP319", f"{read.name} is already cut to fewer positions")
    return (read if gather is None else gather).outputs[0], uses


def conversions(graph: Graph, value: Value) -> list[Node]:
    """Return the Converts of a value if all users except ShapeOf convert to one type.

    Plugins match a converted cache only if the Convert directly follows the ReadValue, before a reorder.

    Args:
        graph: The graph of the value.
        value: The past of a cache, or the output of its beam Gather.
    """
    nodes = [use.node for use in graph.uses(value) if use.node.op != "ShapeOf"]
    types = {node.outputs[0].element_type for node in nodes if node.outputs}
    return nodes if len(types) == 1 and all(node.op == "Convert" for node in nodes) else []
