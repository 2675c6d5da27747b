"""Find windows of attention, and write them so that OpenVINO finds their size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy

from graphpass.analysis.attention.find import Scores, find_attention, read_scores
from graphpass.analysis.attention.mask import AttentionMask, plain_mask
from graphpass.analysis.attention.types import Attention
from graphpass.analysis.caches.masks import find_masks
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import Miss
from graphpass.ir.rewriter import Handle, Rewriter
from graphpass.ir.values import MASKED


@dataclass(frozen=True)
class Window:
    """The mask of an attention that sees a window.

    Attributes:
        node: The operator, or the Softmax.
        masks: The tensors ``[batch, 1, length, sequence]`` that mask its scores, as numbers or booleans.
        mask: The effective mask.
    """

    node: Node
    masks: tuple[Value, ...]
    mask: AttentionMask

    @property
    def obstacle(self) -> Miss | None:
        """Return a condition besides a window, the causal condition and padding."""
        found = plain_mask(self.mask)
        return found if isinstance(found, Miss) else None


def find_windows(model: OpenVINOModel) -> Iterator[Window]:
    """Yield the windows that masks hold, in order of their attention."""
    for attention, mask in zip(model.analysis(find_attention), model.analysis(find_masks), strict=True):
        values = tuple(_masks(model.graph, attention))
        if mask.window is not None and values:
            yield Window(attention.node, values, mask)


def _masks(graph: Graph, attention: Attention) -> Iterator[Value]:
    node = attention.node
    if node.op == "ScaledDotProductAttention":
        yield from (mask for mask in node.inputs[3:4] if mask is not None)
    elif node.op == "Softmax":
        scores = read_scores(graph, node)
        masks = scores.masks if isinstance(scores, Scores) else []
        yield from (mask.value for mask in masks if mask.keeps is None and not mask.is_subtracted)


class WindowWriter:
    """Writes windows; those of one size and element type are one."""

    def __init__(self, rewriter: Rewriter, compared: tuple[Handle, Handle], places: tuple[Handle, Handle]) -> None:
        """Begin with none.

        Args:
            rewriter: Rewriter of the model.
            compared: Positions of keys and queries that windows count.
            places: Those of the causal condition.
        """
        self._rewriter, self._compared, self._places = rewriter, compared, places
        self._written: dict[tuple[int | None, bool, str], Handle] = {}

    def __len__(self) -> int:
        """Return the number of windows written."""
        return len(self._written)

    def replace(self, window: Window) -> None:
        """Write a window, and redirect all users of its masks to it."""
        element_type = window.node.source().element_type
        key = window.mask.window, window.mask.is_padded, element_type
        if key not in self._written:
            self._written[key] = self._write(window, element_type)
        first, *further = window.masks
        self._rewriter.redirect_uses(first, self._written[key])
        for mask in further:
            self._rewriter.redirect_uses(mask, self._rewriter.under(mask.name).number(0.0, mask.element_type))

    def _write(self, window: Window, element_type: str) -> Handle:
        """Write ``Slice(Select(Broadcast(conditions), 0, lowest))``.

        The matcher of gpt_oss_sliding_window_pattern in OpenVINO's state_management_pattern.cpp wants four Ands: the
        window with anything, with the causal condition, with anything, with padding. NPUW's phi3_sliding_mask.cpp
        (openvino 2026.4.1) mends ``And(And(., Greater), LessEqual)`` for prompts that it pads.
        """
        write = self._rewriter.under(f"{window.node.name}/window_mask")
        keys, queries = self._compared
        offset = write.constant(numpy.array([[[[-(window.mask.window or 0)]]]]), "offset", "i64")
        seen = write.op("Greater", keys, write.op("Add", queries, offset, label="first"), label="in_window")
        yes = write.number(True, "boolean", "true")
        others = [write.op("LessEqual", *self._places, label="causal"), yes]
        if window.mask.is_padded:
            padding = self._rewriter.graph.parameters["attention_mask"]
            others[1] = write.op("Unsqueeze", write.op("Convert", padding, to="boolean"), axes=[1, 2], label="padding")
        for other in others:
            seen = write.op("BitwiseAnd", yes, seen, label="and")
            seen = write.op("BitwiseAnd", seen, other, label="and")
        expanded = write.op("Broadcast", seen, [1, 1, 1, 1], mode="bidirectional", label="expanded")
        numbers = (write.number(number, element_type, label) for number, label in ((0.0, "kept"), (MASKED, "masked")))
        chosen = write.op("Select", expanded, *numbers, label="chosen")
        return write.slice(chosen, 0, None, axis=3, label="window_mask")
