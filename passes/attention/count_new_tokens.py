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
from graphpass.ir.rewriter import Handle, Rewriter
from graphpass.passes.attention.step_builder import StepBuilder


@dataclass(frozen=True)
class CountNewTokens(Pass[OnnxModel]):
    """Give GroupQueryAttention the number of new tokens of each row.

    Without these numbers it takes several new tokens after a past for one row alone: second prompts, chunks of prompts
    and drafts go token by token in batches. Models of other exporters with the operator get it, too.

    Where the operator counts a row's tokens by ``attention_mask``, those in the mask's last columns are new, so that
    each row may have padding after its new tokens. Else all are.

    ONNX Runtime has the input from version 1.32 on, older ones refuse the model. It is for causal attention: operators
    that take their whole mask as a bias (ALiBi) stay, with a note. DirectML and WebGPU have no kernel for it.

    Shapes:
        number of new tokens, i32 ``[batch]``

    Before:
        GroupQueryAttention(query, key, value, past key, past value, sum of attention_mask - 1, total, ..)
    After:
        GroupQueryAttention(query, key, value, past key, past value, sum of attention_mask - 1, total, .., sum of the
        last columns of attention_mask)

    Raises:
        UnsupportedError: GP363, no input holds the new tokens.

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
                notes.append(f"attention at {node.name} takes several tokens after a past for one row alone: {count}")
                continue
            rewriter.set_input(node, NEW_TOKENS, count)
            counted += 1
        rewriter.finish()
        return Done({"attention counted": counted}, tuple(notes))


class _Counts:
    """Writes numbers of new tokens, once for all layers of a mask."""

    def __init__(self, model: OnnxModel, rewriter: Rewriter) -> None:
        self._graph = rewriter.graph
        self._lengths = StepBuilder(model, rewriter)
        self._write = rewriter.under("new_tokens")
        self._made: dict[Value | None, Handle] = {}

    def of(self, node: Node) -> Handle | Miss:
        """Return the number of new tokens of each row, i32 ``[batch]``."""
        if not node.attributes.get("causal", 1):
            return Miss(node, "the kernel refuses their numbers beside a mask as a bias")
        lengths, total = node.input(LENGTHS), node.input(TOTAL)
        mask = summed_mask(self._graph, lengths)
        if mask is None and (lengths is None or total is None or not rows_are_full(self._graph, lengths, total)):
            return Miss(node, f"{lengths.name if lengths else 'nothing'} counts its positions, and no attention mask")
        if mask not in self._made:
            self._made[mask] = self._write.op("Convert", self._counted(mask), to="i32", label="count")
        return self._made[mask]

    def _counted(self, mask: Value | None) -> Handle:
        write, lengths = self._write, self._lengths
        if mask is None:
            return write.op("Broadcast", lengths.of("length"), lengths.of("batch"), label="of_each")
        new = write.slice(write.convert(mask, "i64"), lengths.of("past"), None, axis=1, label="new")
        return write.op("ReduceSum", new, axes=[1], keep=False, label="sum")
