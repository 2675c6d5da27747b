"""The pass `expose-window`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy

from graphpass.analysis.attention.mask import AttentionMask, plain_mask
from graphpass.analysis.caches.masks import find_masks
from graphpass.analysis.lengths.buffers import find_mask_buffers
from graphpass.analysis.masks.window import WindowMask
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Graph, Value
from graphpass.ir.rewriter import Handle, Writer
from graphpass.ir.values import MASKED, REALS
from graphpass.passes.masks.window_mask import added_masks, window_masks, write_mask
from graphpass.passes.masks.window_places import Places, count_places


@dataclass(frozen=True)
class ExposeWindow(Pass[OpenVINOModel]):
    """Write sliding-window masks in the form from which OpenVINO reads the window's size.

    Paged attention does not read masks: SDPAToPagedAttention takes the window's size out of the mask's subgraph, and
    if it does not match that, openvino.genai's default backend silently attends to everything. The form is the
    one that gpt-oss and Gemma 3 have when optimum exports them (gpt_oss_sliding_window_pattern in OpenVINO's
    state_management_pattern.cpp).
    Layers with the same mask share one.

    NPUW feeds prompts with padding in front, for which it mends windows in this form alone, and if places in the
    cache are counted as there (phi3_sliding_mask.cpp).

    Shapes:
        mask broadcastable to ``[batch, heads, length, sequence]``; the window is a constant number of positions.

    Before:
        and(.., key_position > query_position - window, ..) in any order, or its negation with or; the comparison in any
        form -> Broadcast, Slice, Select in any order
    After:
        BitwiseAnd(BitwiseAnd(True, BitwiseAnd(BitwiseAnd(True, key_position > query_position + -window), causal)),
        padding) -> Broadcast -> Select(., 0, lowest) -> Slice

    Before:
        constant [1, 1, 128, 128] -> Slice(past, past + length), Slice(0, past + length) -> Select(., 0, lowest) ->
        Add(., mask)
    After:
        the same form, with places counted by Range, and mask > -1000 as one of the conditions

    Masks in other forms are written anew if they are proven, as expressions of positions and attention_mask, to hold a
    window, the causal condition and padding alone.

    Before:
        Range(past, past + length), Range(0, length) + past, however written -> Unsqueeze of two axes -> Unsqueeze
    After:
        Range(Gather(ShapeOf(cache)), past + length) -> Unsqueeze -> Unsqueeze -> Unsqueeze
    """

    name = "expose-window"
    dialect = "openvino"

    def run(self, model: OpenVINOModel) -> Done:
        compared, stated = _compare_buffers(model), _state_windows(model)
        counted = count_places(model, [mask for _, _, mask in window_masks(model)])
        rewriter = model.rewriter()
        graph, count = rewriter.graph, 0
        written: dict[WindowMask, Handle] = {}
        for node, value, mask in window_masks(model):
            if _is_exposed(graph, value):
                continue
            if mask not in written:
                written[mask] = write_mask(rewriter, mask, f"{node.name}/window_mask")
            # All users of this mask read it for the same window.
            rewriter.redirect_uses(value, written[mask])
            count += 1
        rewriter.finish()
        counts = {"windows exposed": count, "masks": len(written)}
        counts |= {"buffers compared": compared, "masks rewritten": stated, "places counted": counted}
        return Done({told: number for told, number in counts.items() if number})


def _compare_buffers(model: OpenVINOModel) -> int:
    """Replace constant windows by comparisons of places; return their number."""
    buffers = find_mask_buffers(model)
    places = Places.of(model) if buffers else None
    if places is None:
        return 0
    rewriter = model.rewriter()
    write = rewriter.under("window/buffer")
    keys, queries = places.write(rewriter)
    causal = write.op("LessEqual", keys, queries, label="causal")
    for buffer in buffers:
        first = write.op("Add", queries, write.constant(numpy.array([[[[-buffer.window]]]])), label="first")
        seen = write.op("BitwiseAnd", write.op("Greater", keys, first), causal, label="seen")
        rewriter.redirect_uses(buffer.condition, seen if buffer.holds else write.op("LogicalNot", seen))
    rewriter.finish()
    return len(buffers)


def _state_windows(model: OpenVINOModel) -> int:
    """Write masks anew that are proven to hold a window alone; return their number."""
    read = {node.index for node, _, _ in window_masks(model)}
    plain = {mask.node.index: mask for mask in model.analysis(find_masks) if mask.window is not None}
    missed = [
        (node, value, plain[node.index].window or 0)
        for node, value in added_masks(model)
        if node.index in plain.keys() - read and isinstance(plain_mask(plain[node.index]), AttentionMask)
    ]
    places, padding = Places.of(model) if missed else None, model.graph.parameters.get("attention_mask")
    if places is None or padding is None:
        return 0
    rewriter = model.rewriter()
    write = rewriter.under("window/stated")
    keys, queries = places.write(rewriter)
    known = write.op("BitwiseAnd", write.op("LessEqual", keys, queries), _shown(write, padding))
    for _, value, window in missed:
        first = write.op("Add", queries, write.constant(numpy.array([[[[-window]]]])), label="first")
        seen = write.op("BitwiseAnd", write.op("Greater", keys, first), known, label="seen")
        numbers = [write.number(number, value.element_type) for number in (0.0, MASKED)]
        is_number = value.element_type in REALS
        rewriter.redirect_uses(value, write.op("Select", seen, *numbers) if is_number else seen)
    rewriter.finish()
    return len(missed)


def _shown(write: Writer, padding: Value) -> Handle:
    return write.op("Unsqueeze", write.op("Convert", padding, to="boolean"), axes=[1, 2], label="padding")


def _is_exposed(graph: Graph, mask: Value) -> bool:
    """Return whether the matcher in state_management_pattern.cpp takes ``mask`` as it is."""
    path = (("Slice", 0), ("Select", 0), ("Broadcast", 0), ("BitwiseAnd", 0), ("BitwiseAnd", 1), ("BitwiseAnd", 0))
    node = graph.producer(mask)
    for kind, port in (*path, ("BitwiseAnd", 1), ("Greater", 1)):
        if node.op != kind:
            return False
        node = graph.producer(node.source(port))
    return node.op == "Add" and graph.producer(node.source(1)).op == "Constant"
