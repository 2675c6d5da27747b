"""Find windows of attention, and write them so that OpenVINO finds their size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy

from graphpass.analysis.attention.find import Scores, find_attention, read_scores
from graphpass.analysis.attention.mask import AttentionMask, plain_mask
from graphpass.analysis.attention.types import Attention
from graphpass.analysis.caches.masks import find_masks
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import Miss
from graphpass.ir.model import Model
from graphpass.ir.rewriter import Handle, Rewriter
from graphpass.ir.values import MASKED


@dataclass(frozen=True)
class Window:
    """The mask of an attention that sees a window.

    Attributes:
        node: The operator, or the Softmax.
        masks: The tensors ``[batch, 1, length, sequence]`` that mask its scores, as numbers or booleans.
        mask: The effective mask.
        conditions: Booleans of the same shape that Selects before a Softmax read; with True, or False, for all keys.
        inside: Indices of the nodes between the product with the keys and the Softmax; empty for an operator.
    """

    node: Node
    masks: tuple[Value, ...]
    mask: AttentionMask
    conditions: tuple[tuple[Value, bool], ...] = ()
    inside: frozenset[int] = frozenset()

    @property
    def obstacle(self) -> Miss | None:
        """Return a condition besides a window, the causal condition and padding."""
        mask = plain_mask(self.mask)
        return mask if isinstance(mask, Miss) else None


def find_windows(model: Model) -> Iterator[Window]:
    """Yield the windows that masks hold, in order of their attention."""
    for attention, mask in zip(model.analysis(find_attention), model.analysis(find_masks), strict=True):
        if mask.window is not None and (window := _window(model.graph, attention, mask)).masks:
            yield window


def _window(graph: Graph, attention: Attention, mask: AttentionMask) -> Window:
    node = attention.node
    scores = read_scores(graph, node) if node.op == "Softmax" else None
    if not isinstance(scores, Scores):
        is_fused = node.op == "ScaledDotProductAttention"
        return Window(node, tuple(value for value in node.inputs[3:4] if value is not None and is_fused), mask)
    added = tuple(mask.value for mask in scores.masks if mask.keeps is None and not mask.is_subtracted)
    conditions = tuple((mask.value, mask.keeps) for mask in scores.masks if mask.keeps is not None)
    before = graph.backward(node.inputs, lambda node: () if node.op == "MatMul" else node.inputs)
    return Window(node, added, mask, conditions, frozenset({node.index, *(node.index for node in before)}))


class WindowWriter:
    """Writes windows; those of one size and element type are one."""

    def __init__(
        self,
        rewriter: Rewriter,
        compared: tuple[Handle, Handle],
        places: tuple[Handle, Handle],
        both: Literal["BitwiseAnd", "LogicalAnd"] = "BitwiseAnd",
    ) -> None:
        """Begin with none.

        Args:
            rewriter: Rewriter of the model.
            compared: Positions of keys and queries that windows count.
            places: Those of the causal condition.
            both: Operator that joins conditions; ONNX has no BitwiseAnd of booleans.
        """
        self._both = both
        self._rewriter, self._compared, self._places = rewriter, compared, places
        self._written: dict[tuple[int | None, bool, str], Handle] = {}

    def __len__(self) -> int:
        """Return the number of windows written."""
        return len(self._written)

    def replace(self, window: Window) -> None:
        """Write a window, and let its attention read it; of operators, all users."""
        element_type = window.node.source().element_type
        key = window.mask.window, window.mask.is_padded, element_type
        if key not in self._written:
            self._written[key] = self._write(window, element_type)
        first, *further = window.masks
        only = (lambda use: use.node.index in window.inside) if window.inside else None
        self._rewriter.redirect_uses(first, self._written[key], only)
        for mask in further:
            self._rewriter.redirect_uses(mask, self._rewriter.under(mask.name).number(0.0, mask.element_type), only)
        for condition, keeps in window.conditions:
            kept = self._rewriter.under(f"{window.node.name}/{condition.name}").number(keeps, "boolean")
            self._rewriter.redirect_uses(condition, kept, only)

    def _write(self, window: Window, element_type: str) -> Handle:
        """Write ``Slice(Select(Broadcast(conditions), 0, lowest))``.

        The matcher of gpt_oss_sliding_window_pattern in OpenVINO's state_management_pattern.cpp requires four Ands: the
        window with anything, with the causal condition, with anything, with padding. NPUW's phi3_sliding_mask.cpp
        (openvino 2026.4.1) fixes ``And(And(., Greater), LessEqual)`` for prompts that it pads.
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
            seen = write.op(self._both, yes, seen, label="and")
            seen = write.op(self._both, seen, other, label="and")
        expanded = write.op("Broadcast", seen, [1, 1, 1, 1], mode="bidirectional", label="expanded")
        numbers = (write.number(number, element_type, label) for number, label in ((0.0, "kept"), (MASKED, "masked")))
        chosen = write.op("Select", expanded, *numbers, label="chosen")
        return write.slice(chosen, 0, None, axis=3, label="window_mask")
