"""Find sliding windows, and write their masks in a form that OpenVINO matches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy

from graphpass.analysis.attention.effective_mask import partial_mask
from graphpass.analysis.attention.find import Scores, find_attention, read_scores
from graphpass.analysis.attention.mask import AttentionMask, plain_mask
from graphpass.analysis.attention.types import Attention
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.masks import find_elements, find_masks
from graphpass.analysis.caches.past import past_of
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.inputs import SOURCE_SLOTS, token_input
from graphpass.ir.miss import Miss
from graphpass.ir.model import Model
from graphpass.ir.operators import ANDS, ORS
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.values import MASKED
from graphpass.ir.writer import Handle, Writer
from graphpass.passes.attention.step_builder import StepBuilder

#: Operators that combine masks, and those that read one mask as their first input.
_COMBINES, _CUTS = ANDS | ORS | {"Select"}, frozenset({"Broadcast", "Convert", "Slice"})


@dataclass(frozen=True)
class Window:
    """The mask of an attention with a sliding window or chunks.

    Attributes:
        node: The attention operator, or the Softmax.
        masks: The tensors ``[batch, 1, length, sequence]`` that mask its scores, added or boolean.
        mask: The effective mask.
        conditions: Boolean tensors of the same shape that Selects before a Softmax read, each with the value at which
            scores are kept.
        inside: Indices of the nodes between the product with the keys and the Softmax; empty for an operator.
        is_part: Whether `masks` is one of the masks that other operators combine, and keeps its element type.
    """

    node: Node
    masks: tuple[Value, ...]
    mask: AttentionMask
    conditions: tuple[tuple[Value, bool], ...] = ()
    inside: frozenset[int] = frozenset()
    is_part: bool = False

    @property
    def obstacle(self) -> Miss | None:
        """Return the reason if the mask has conditions other than window, causality and padding."""
        mask = plain_mask(self.mask)
        return mask if isinstance(mask, Miss) else None


def find_windows(model: Model, *, partial: bool = False) -> Iterator[Window]:
    """Yield the sliding windows that masks implement, in the order of their attention.

    Args:
        model: The model.
        partial: Whether to also yield windows in masks that allow more, such as Gemma 3's also attention within images.
    """
    seen = set[Value]()
    for attention, mask in zip(model.analysis(find_attention), model.analysis(find_masks), strict=True):
        if mask.window is not None and (window := masks_of(model.graph, attention, mask)).masks:
            yield window
        if partial and attention.node.op == "ScaledDotProductAttention" and isinstance(plain_mask(mask), Miss):
            yield from _partial_windows(model, attention, seen)


def _partial_windows(model: Model, attention: Attention, seen: set[Value]) -> Iterator[Window]:
    """Yield windows that conditions combine with other masks; skip masks in ``seen`` and extend it."""
    pending = attention.node.present([3])
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        part = partial_mask(model.analysis(find_elements), attention, value)
        if isinstance(part, Miss) or part.window is None or isinstance(plain_mask(part), Miss):
            node = model.graph.producer(value)
            pending += node.sources if node.op in _COMBINES else node.sources[:1] if node.op in _CUTS else ()
        else:
            yield Window(attention.node, (value,), part, is_part=True)


def masks_of(graph: Graph, attention: Attention, mask: AttentionMask) -> Window:
    """Return the tensors that mask the scores of an attention.

    Args:
        graph: The graph.
        attention: The attention.
        mask: Its effective mask.
    """
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
    """Writes one mask for windows of equal size and element type."""

    def __init__(
        self,
        rewriter: Rewriter,
        compared: tuple[Handle, Handle],
        slots: tuple[Handle, Handle],
        both: Literal["BitwiseAnd", "LogicalAnd"] = "BitwiseAnd",
    ) -> None:
        """Set the positions that conditions compare.

        Args:
            rewriter: Rewriter of the model.
            compared: Positions of keys and queries that windows compare.
            slots: Slots of keys and queries, which the causal condition compares.
            both: Operator of conjunctions; ONNX's BitwiseAnd does not accept booleans.
        """
        self._both = both
        self._rewriter, self._compared, self._slots = rewriter, compared, slots
        self._written: dict[tuple[int | None, int | None, bool, str], Handle] = {}

    def __len__(self) -> int:
        """Return the number of masks written."""
        return len(self._written)

    def replace(self, window: Window) -> None:
        """Replace the masks of a window; of attention operators, for all users of the masks."""
        read = window.masks[0] if window.is_part else window.node.source()
        element_type = read.element_type
        key = window.mask.window, window.mask.chunk, window.mask.is_padded, element_type
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
        """Return ``Slice(Select(Broadcast(conditions), 0, lowest))``.

        The matcher of gpt_oss_sliding_window_pattern in OpenVINO's state_management_pattern.cpp requires four Ands: of
        the window with any value, with the causal condition, with any value, and with padding. NPUW's
        phi3_sliding_mask.cpp (openvino 2026.4.1) corrects ``And(And(., Greater), LessEqual)`` for padded prompts.
        """
        write = self._rewriter.under(f"{window.node.name}/window_mask")
        yes = write.number(True, "boolean", "true")
        seen = yes if window.mask.window is window.mask.chunk is None else self._within(write, window.mask)
        others = [write.op("LessEqual", *self._slots, label="causal"), yes]
        if window.mask.is_padded:
            padding = self._rewriter.graph.parameters["attention_mask"]
            others[1] = write.op("Unsqueeze", write.op("Convert", padding, to="boolean"), axes=[1, 2], label="padding")
        for other in others:
            seen = write.op(self._both, yes, seen, label="and")
            seen = write.op(self._both, seen, other, label="and")
        if element_type == "boolean":
            return seen
        expanded = write.op("Broadcast", seen, [1, 1, 1, 1], mode="bidirectional", label="expanded")
        numbers = (write.number(number, element_type, label) for number, label in ((0.0, "kept"), (MASKED, "masked")))
        chosen = write.op("Select", expanded, *numbers, label="chosen")
        return write.slice(chosen, 0, None, axis=3, label="window_mask")

    def _within(self, write: Writer, mask: AttentionMask) -> Handle:
        """Return whether keys are in the window, or in the chunk, of queries."""
        keys, queries = self._compared
        if mask.chunk is not None:
            size = write.constant(numpy.array([[[[mask.chunk]]]]), "chunk", "i64")
            quotients = (write.op("Divide", positions, size) for positions in (keys, queries))
            return write.op("Equal", *quotients, label="in_chunk")
        offset = write.constant(numpy.array([[[[-(mask.window or 0)]]]]), "offset", "i64")
        return write.op("Greater", keys, write.op("Add", queries, offset, label="first"), label="in_window")


def window_slots(model: Model, rewriter: Rewriter) -> tuple[Handle, Handle] | None:
    """Write slots of keys ``[1, 1, 1, sequence]`` and queries ``[1, 1, length, 1]``, in NPUW's form.

    NPUW's phi3_sliding_mask.cpp requires Ranges whose bounds a Gather reads from the shape of a cache, and an Unsqueeze
    for each axis. If the model moves and cuts slots, the length of the past varies, and the padding mask's is read.

    Args:
        model: The model.
        rewriter: Its rewriter.

    Returns:
        The slots; ``None`` for a model without growing caches or input of tokens.
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
        slots = write.op("Range", first, whole, 1, label=f"{label}_range")
        if model.dialect == "onnx":
            made.append(write.op("Unsqueeze", slots, axes=axes, label=label))
            continue
        for axis in axes:
            slots = rewriter.op("Unsqueeze", slots, axis, name=f"window/{label}_{axis}")
        made.append(slots)
    return made[0], made[1]


def counted_tokens(model: Model, rewriter: Rewriter) -> tuple[Handle, Handle]:
    """Count the tokens up to each key and query by attention_mask.

    Args:
        model: A model with input ``attention_mask``.
        rewriter: Its rewriter.

    Returns:
        Counts of keys ``[batch, 1, 1, sequence]`` and of queries ``[batch, 1, length, 1]``, i64.
    """
    write = rewriter.under("window")
    seen = write.convert(rewriter.graph.parameters["attention_mask"], "i64")
    counted = write.op("CumSum", seen, axis=1, label="counted")
    new = write.slice(counted, StepBuilder(model, rewriter).of("past"), None, axis=1, label="of_new")
    keys = write.op("Unsqueeze", counted, axes=[1, 2], label="tokens_of_keys")
    return keys, write.op("Unsqueeze", new, axes=[1, 3], label="tokens_of_queries")
