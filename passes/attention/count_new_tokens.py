"""The pass `count-new-tokens`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.equations.row_lengths import LENGTHS, TOTAL, rows_are_full, summed_mask
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.conditions import OPSET_13
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Node, Value
from graphpass.ir.miss import Miss
from graphpass.ir.operators import NEW_TOKENS
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.writer import Handle
from graphpass.passes.attention.step_builder import StepBuilder


@dataclass(frozen=True)
class CountNewTokens(Pass[OnnxModel]):
    """Set the number of new tokens of each row in GroupQueryAttention.

    Without this input the operator accepts several new tokens after a past only with batch size 1: in larger batches,
    sessions feed second prompts, chunks of prompts and drafts token by token. Models of exporters that write the
    operator are handled as well.

    If the operator counts the tokens of a row by ``attention_mask``, new tokens are those that the last ``length``
    columns of the mask count, and a row may have padding after them. Otherwise all ``length`` tokens are new.

    ONNX Runtime supports the input from version 1.32 on; older versions refuse the model. The input requires causal
    attention: operators that read their whole mask as a bias (ALiBi) are unchanged, with a note. DirectML and WebGPU
    have no kernel for it.

    Shapes:
        number of new tokens, i32 ``[batch]``

    Before:
        GroupQueryAttention(query, key, value, past key, past value, sum of attention_mask - 1, total, ..)
    After:
        GroupQueryAttention(query, key, value, past key, past value, sum of attention_mask - 1, total, .., sum of the
        last columns of attention_mask)

    Raises:
        UnsupportedError: GP363, the model has no input with the new tokens.

    Source: ``query_seqlens`` in docs/ContribOperators.md of ONNX Runtime 1.32.
    """

    name = "count-new-tokens"
    dialect = "onnx"
    only_for = (OPSET_13,)

    def run(self, model: OnnxModel) -> Done:
        kept = model.analysis(analyze_caches).of_kind("kv")
        nodes = [node for node in model.graph.of_op("GroupQueryAttention") if node.input(NEW_TOKENS) is None]
        if not nodes or not kept:
            return Done()
        rewriter = model.rewriter()
        counts = _Counts(model, rewriter)
        counted, notes = 0, []
        for node in nodes:
            count = counts.of(node)
            if isinstance(count, Miss):
                notes.append(f"{node.name} accepts several tokens after a past only in batches of 1: {count}")
                continue
            rewriter.set_input(node, NEW_TOKENS, count)
            counted += 1
        rewriter.finish()
        return Done({"attention counted": counted}, tuple(notes))


class _Counts:
    """Writes the number of new tokens of each row, once for each mask."""

    def __init__(self, model: OnnxModel, rewriter: Rewriter) -> None:
        self._graph = rewriter.graph
        self._lengths = StepBuilder(model, rewriter)
        self._write = rewriter.under("new_tokens")
        self._made: dict[Value | None, Handle] = {}

    def of(self, node: Node) -> Handle | Miss:
        """Return the number of new tokens of each row, i32 ``[batch]``."""
        if not node.attributes.get("causal", 1):
            return Miss(node, "the kernel does not support query_seqlens with a mask as a bias")
        lengths, total = node.input(LENGTHS), node.input(TOTAL)
        mask = summed_mask(self._graph, lengths)
        if mask is None and (lengths is None or total is None or not rows_are_full(self._graph, lengths, total)):
            return Miss(node, f"its lengths are {lengths.name if lengths else 'missing'}, not a sum of attention_mask")
        if mask not in self._made:
            self._made[mask] = self._write.op("Convert", self._counted(mask), to="i32", label="count")
        return self._made[mask]

    def _counted(self, mask: Value | None) -> Handle:
        write, lengths = self._write, self._lengths
        if mask is None:
            return write.op("Broadcast", lengths.of("length"), lengths.of("batch"), label="of_each")
        new = write.slice(write.convert(mask, "i64"), lengths.of("past"), None, axis=1, label="new")
        return write.op("ReduceSum", new, axes=[1], keep=False, label="sum")
