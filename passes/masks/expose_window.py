"""The pass `expose-window`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.caches.slot_indices import are_known_slots
from graphpass.analysis.pattern import Match, op, var
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Graph
from graphpass.passes.masks.window_mask import Window, WindowWriter, counted_tokens, find_windows, window_slots

_GREATER = op.Greater(var("keys"), op.Add(var("queries"), op.Constant()))


@dataclass(frozen=True)
class ExposeWindow(Pass[OpenVINOModel]):
    """Write sliding-window masks in the form from which OpenVINO reads the window's size.

    Paged attention does not read masks. SDPAToPagedAttention reads the window's size from the mask's subgraph; if the
    subgraph does not match, openvino.genai's default backend silently attends to all positions. The pass writes the
    form of optimum's exports of gpt-oss and Gemma 3 (gpt_oss_sliding_window_pattern in OpenVINO's
    state_management_pattern.cpp). Layers with equal masks share one mask.

    NPUW pads prompts on the left. It corrects windows for this padding only in this form, with slots counted by the
    same operators (phi3_sliding_mask.cpp).

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
        the same form, with slots counted by Range, and mask > -1000 as one of the conditions

    Masks in other forms are rewritten if they are proved, as expressions of positions and attention_mask, to consist of
    a window, the causal condition and padding. Windows that count tokens by attention_mask instead of slots still count
    tokens after the pass: slots between tokens may be padding.

    Before:
        Range(past, past + length), Range(0, length) + past, however written -> Unsqueeze of two axes -> Unsqueeze
    After:
        Range(Gather(ShapeOf(cache)), past + length) -> Unsqueeze -> Unsqueeze -> Unsqueeze

    Options:
        partial: Also write windows inside of masks that allow more, as Gemma 3's allow attention within an image. NPUW
            corrects such windows, while SDPAToPagedAttention matches some exporters' forms of the whole mask only.

    Before:
        Select(within an image, 0, mask of a window)
    After:
        the same Select of the form above
    """

    name = "expose-window"
    dialect = "openvino"

    partial: bool = False

    def run(self, model: OpenVINOModel) -> Done:
        windows = [
            window
            for window in find_windows(model, partial=self.partial)
            if window.obstacle is None
            and (window.mask.window_of_tokens is not None or not window.mask.counts_positions)
            and not _is_exposed(model.graph, window)
        ]
        rewriter = model.rewriter()
        slots = window_slots(model, rewriter) if windows else None
        if slots is None:
            return Done()
        writers: dict[bool, WindowWriter] = {}
        for window in windows:
            by_tokens = window.mask.window_of_tokens is not None
            if by_tokens not in writers:
                compared = counted_tokens(model, rewriter) if by_tokens else slots
                writers[by_tokens] = WindowWriter(rewriter, compared, slots)
            writers[by_tokens].replace(window)
        rewriter.finish()
        return Done({"windows exposed": len(windows), "masks": sum(map(len, writers.values()))})


def _is_exposed(graph: Graph, window: Window) -> bool:
    """Return whether OpenVINO's matcher accepts the masks of ``window``, and NPUW their slots."""
    added = (("Slice", 0), ("Select", 0), ("Broadcast", 0))
    ands = (("BitwiseAnd", 0), ("BitwiseAnd", 1), ("BitwiseAnd", 0), ("BitwiseAnd", 1))
    for mask in window.masks:
        node = graph.producer(mask)
        for kind, port in ands if mask.element_type == "boolean" else (*added, *ands):
            if node.op != kind:
                return False
            node = graph.producer(node.source(port))
        match = _GREATER.match(graph, node.outputs[0])
        counts_tokens = window.mask.window_of_tokens is not None
        if not (
            isinstance(match, Match) and (counts_tokens or are_known_slots(graph, match["keys"], match["queries"]))
        ):
            return False
    return True
