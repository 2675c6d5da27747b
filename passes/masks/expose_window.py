"""The pass `expose-window`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy

from graphpass.analysis.attention.find import find_attention
from graphpass.analysis.attention.match import Scores, read_scores
from graphpass.analysis.lengths.buffers import find_mask_buffers
from graphpass.analysis.masks.window import WindowMask, read_mask
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.rewrite import named, output_of, redirect
from graphpass.engine.passes import Changed, Pass, PassResult, Unchanged
from graphpass.ir.types import Dialect
from graphpass.passes.masks.window_mask import write_mask
from graphpass.passes.masks.window_places import count_places, write_places

if TYPE_CHECKING:
    from collections.abc import Iterator

    import openvino

    from graphpass.ir.graph import Node, Value

__all__ = ["ExposeWindow"]


@dataclass(frozen=True)
class ExposeWindow(Pass[OpenVINOModel]):
    """Write sliding-window masks in the form from which OpenVINO reads the window's size.

    Paged attention does not read masks: SDPAToPagedAttention takes the window's size out of the mask's subgraph, and
    where it does not recognise that, openvino.genai's default backend silently attends to everything. The form is the
    one that gpt-oss and Gemma 3 have when optimum exports them (gpt_oss_sliding_window_pattern in OpenVINO's
    state_management_pattern.cpp).
    Layers with the same mask share one.

    NPUW feeds prompts with padding in front, for which it mends windows in this form alone, and where places in the
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

    Before:
        Range(past, past + length), Range(0, length) + past, however written -> Unsqueeze of two axes -> Unsqueeze
    After:
        Range(Gather(ShapeOf(cache)), past + length) -> Unsqueeze -> Unsqueeze -> Unsqueeze
    """

    name: ClassVar[str] = "expose-window"
    dialect: ClassVar[Dialect | None] = "openvino"

    def run(self, model: OpenVINOModel) -> PassResult:
        """See `Pass.run`."""
        compared = _compare_buffers(model)
        read = (read_mask(model.graph, value) for _, value in _masks(model))
        counted = count_places(model, [mask for mask in read if mask is not None])
        graph = model.graph
        rebuilt: dict[WindowMask, openvino.Node] = {}
        count = 0
        for node, value in _masks(model):
            mask = read_mask(graph, value)
            if mask is None or _is_exposed(output_of(graph, value)):
                continue
            if mask not in rebuilt:
                rebuilt[mask] = write_mask(mask, f"{node.name}/window_mask", graph)
            # Who else reads this mask reads it for the same window.
            redirect(output_of(graph, value), rebuilt[mask].output(0))
            count += 1
        if not count and not compared and not counted:
            return Unchanged()
        model.ov_model.validate_nodes_and_infer_types()
        counts = {"windows exposed": count, "masks": len(rebuilt)}
        counts |= {"buffers compared": compared, "places counted": counted}
        return Changed(model, {told: number for told, number in counts.items() if number})


def _masks(model: OpenVINOModel) -> Iterator[tuple[Node, Value]]:
    """What is added to the scores of each attention, fused or not, and the attention."""
    graph = model.graph
    for attention in model.analysis(find_attention):
        node = attention.node
        if node.op == "ScaledDotProductAttention":
            yield from ((node, mask) for mask in node.inputs[3:4] if mask is not None)
        elif node.op == "Softmax":
            scores = read_scores(graph, node)
            masks = scores.masks if isinstance(scores, Scores) else []
            yield from ((node, mask.value) for mask in masks if mask.keeps is None and not mask.is_subtracted)


def _compare_buffers(model: OpenVINOModel) -> int:
    """Let windows that are kept as a constant be computed by comparing places; how many there were."""
    from openvino import opset13

    graph = model.graph
    buffers = find_mask_buffers(model)
    places = write_places(model) if buffers else None
    if places is None:
        return 0
    keys, queries = places
    causal = named(opset13.less_equal(keys, queries), "window/causal")
    for number, buffer in enumerate(buffers):
        name = f"window/buffer_{number}"
        first = opset13.add(
            queries, named(opset13.constant([[[[-buffer.window]]]], dtype=numpy.int64), f"{name}/offset")
        )
        seen = opset13.bitwise_and(opset13.greater(keys, first), causal)
        condition = seen if buffer.holds else opset13.logical_not(seen)
        redirect(output_of(graph, buffer.condition), named(condition, name).output(0))
    model.ov_model.validate_nodes_and_infer_types()
    model.mark_edited()
    return len(buffers)


def _is_exposed(mask: openvino.Output) -> bool:
    """Whether the matcher in state_management_pattern.cpp takes ``mask`` as it is."""
    path = (("Slice", 0), ("Select", 0), ("Broadcast", 0), ("BitwiseAnd", 0), ("BitwiseAnd", 1), ("BitwiseAnd", 0))
    node = mask.get_node()
    for kind, port in (*path, ("BitwiseAnd", 1), ("Greater", 1)):
        if node.get_type_name() != kind:
            return False
        node = node.input_value(port).get_node()
    return bool(node.get_type_name() == "Add" and node.input_value(1).get_node().get_type_name() == "Constant")
