"""Count places in the cache as NPUW does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.past import past_of
from graphpass.ir.inputs import SOURCE_SLOTS, token_input

if TYPE_CHECKING:
    from graphpass.ir.model import Model
    from graphpass.ir.rewriter import Handle, Rewriter
from graphpass.passes.attention.step_builder import StepBuilder


def window_places(model: Model, rewriter: Rewriter) -> tuple[Handle, Handle] | None:
    """Make places of keys ``[1, 1, 1, sequence]`` and queries ``[1, 1, length, 1]``, as NPUW knows them.

    Its phi3_sliding_mask.cpp requires ranges from and to the length that a Gather takes of a cache, and an Unsqueeze
    for each axis. The padding mask has the length instead if slots are moved and cut: the past has any number then.

    Returns:
        The places; ``None`` for a model without growing caches or input of tokens.
    """
    caches, tokens = analyze_caches(model).of_kind("kv"), token_input(model.graph)
    if not caches or tokens is None:
        return None
    parameters, write = model.graph.parameters, rewriter.under("window")
    mask = parameters.get("attention_mask") if SOURCE_SLOTS in parameters else None
    past = past_of(model.graph, model.graph.reads[caches[0].read])
    counted = (past, caches[0].axes.sequence or 0, "past") if mask is None else (mask, 1, "total")
    count, new = (
        write.op("Gather", write.op("ShapeOf", value), axis, axis=0, label=label)
        for value, axis, label in (counted, (tokens, 1, "new"))
    )
    start = count if mask is None else write.op("Subtract", count, new, label="past")
    whole = write.op("Add", start, new, label="whole")
    made = []
    for first, axes, label in ((0, (0, 1, 2), "keys"), (start, (0, 1, 3), "queries")):
        places = write.op("Range", first, whole, 1, label=f"{label}_range")
        if model.dialect == "onnx":
            made.append(write.op("Unsqueeze", places, axes=axes, label=label))
            continue
        for axis in axes:
            places = rewriter.op("Unsqueeze", places, axis, name=f"window/{label}_{axis}")
        made.append(places)
    return made[0], made[1]


def counted_tokens(model: Model, rewriter: Rewriter) -> tuple[Handle, Handle]:
    """Count tokens up to each key and query by attention_mask.

    Returns:
        Those of keys ``[batch, 1, 1, sequence]`` and of queries ``[batch, 1, length, 1]``, i64.
    """
    write = rewriter.under("window")
    seen = write.convert(rewriter.graph.parameters["attention_mask"], "i64")
    counted = write.op("CumSum", seen, axis=1, label="counted")
    new = write.slice(counted, StepBuilder(model, rewriter).of("past"), None, axis=1, label="of_new")
    keys = write.op("Unsqueeze", counted, axes=[1, 2], label="tokens_of_keys")
    return keys, write.op("Unsqueeze", new, axes=[1, 3], label="tokens_of_queries")
