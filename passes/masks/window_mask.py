"""Find masks, and write windows in the form from which OpenVINO reads their size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy

from graphpass.analysis.attention.find import Scores, find_attention, read_scores
from graphpass.analysis.masks.window import Condition, WindowMask, read_mask
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.rewriter import Handle, Operand, Rewriter, Writer
from graphpass.ir.values import MASKED_BELOW


def window_masks(model: OpenVINOModel) -> Iterator[tuple[Node, Value, WindowMask]]:
    """Yield masks with a window, unread and read, with their operators."""
    for node, value in added_masks(model):
        mask = read_mask(model.graph, value, node.source().element_type)
        if mask is not None:
            yield node, value, mask


def added_masks(model: OpenVINOModel) -> Iterator[tuple[Node, Value]]:
    """Yield masks that are added to scores, with the operator that takes these."""
    for attention in model.analysis(find_attention):
        node = attention.node
        if node.op == "ScaledDotProductAttention":
            yield from ((node, mask) for mask in node.inputs[3:4] if mask is not None)
        elif node.op == "Softmax":
            scores = read_scores(model.graph, node)
            masks = scores.masks if isinstance(scores, Scores) else []
            yield from ((node, mask.value) for mask in masks if mask.keeps is None and not mask.is_subtracted)


def write_mask(
    rewriter: Rewriter, mask: WindowMask, name: str, compared: tuple[Handle, Handle] | None = None
) -> Handle:
    """Write ``mask`` in the form from which paged attention reads the window.

    Positions of keys and queries in ``compared`` replace those of the mask.
    """
    write = rewriter.under(name)
    keys, queries = map(rewriter.handle, compared or (mask.keys, mask.queries))
    offset = write.constant(numpy.array([[[[-mask.window]]]]), "offset", rewriter.type_of(queries))
    condition = write.op("Greater", keys, write.op("Add", queries, offset, label="first"), label="in_window")
    others = [_written(rewriter.graph, write, other) for other in _causal_first(rewriter.graph, mask.others)]
    # The matcher wants four Ands: the window with anything, with the causal condition, with anything, with padding.
    while len(others) > 2:
        others[-2:] = [write.op("BitwiseAnd", *others[-2:], label="also")]
    yes = write.number(True, "boolean", "true")
    others += [yes] * (2 - len(others))
    for other in others:
        condition = write.op("BitwiseAnd", yes, condition, label="and")
        condition = write.op("BitwiseAnd", condition, other, label="and")
    shape = mask.shape or [1, 1, 1, 1]
    expanded = write.op("Broadcast", condition, shape, mode="bidirectional", label="expanded")
    branches = [
        write.number(number, mask.element_type, part) for number, part in ((mask.kept, "kept"), (mask.masked, "masked"))
    ]
    chosen = write.op("Select", expanded, *branches, label="chosen")
    if mask.bounds:
        return write.op("Slice", chosen, *mask.bounds, name=name)
    return write.slice(chosen, 0, None, axis=3, name=name)  # the matcher wants one


def _causal_first(graph: Graph, others: tuple[Condition, ...]) -> list[Condition]:
    """Put conditions that compare positions first: NPUW wants them right after the window.

    Its phi3_sliding_mask.cpp (openvino 2026.4.1) mends ``And(And(., Greater), LessEqual)`` for prompts that it pads.
    """
    return sorted(others, key=lambda other: other.compares(graph) is None)


def _written(graph: Graph, write: Writer, condition: Condition) -> Operand:
    value = condition.value
    if graph.producer(value).op == "Parameter" and value.rank == 2:
        return write.op("Unsqueeze", write.op("Convert", value, to="boolean"), axes=[1, 2], label="other")
    if value.element_type != "boolean":
        limit = write.number(MASKED_BELOW, value.element_type, "masked_below")
        return write.op("Greater", value, limit, label="other")
    return value if condition.holds else write.op("LogicalNot", value, label="other")
