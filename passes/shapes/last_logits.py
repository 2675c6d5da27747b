"""The pass `last-logits`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from graphpass.analysis.caches.last_logits import selects_undeclared
from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.ir.graph import Value
from graphpass.ir.inputs import token_input
from graphpass.ir.model import Model
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.values import head_of
from graphpass.ir.writer import Handle
from graphpass.passes.attention.step_builder import StepBuilder

_LOGITS = "logits"

#: transformers' input for the number of positions; 0, a slice from -0, keeps all.
_COUNT = "num_logits_to_keep"


@dataclass(frozen=True)
class LastLogits(Pass[Model]):
    """Compute only the logits of each row's last token.

    Generation reads no other logits of a prompt, and the product with the vocabulary is its most expensive operator:
    2494 ms and 593 MB for 1024 tokens, hidden size 896 and 151,936 token ids, 57 ms for one token (ONNX Runtime 1.31, 2
    cores). Speculative decoding and perplexity require the logits of all tokens. The last token is the last position
    that ``attention_mask`` counts, so that padding may be left or right. If the model selects the last position by
    itself, the output is declared as ``[batch, 1, vocabulary]``, by which onnxruntime-genai knows such models.

    Options:
        count: With ``input``, the scalar input ``num_logits_to_keep`` is the number of last positions, 0 for all.
            transformers.js feeds 1 while it generates. Padding must be on the left.

    Shapes:
        hidden states ``[batch, length, hidden]`` become ``[batch, 1, hidden]``, logits ``[batch, 1, vocabulary]``

    Before:
        hidden states -> MatMul(., head) -> logits
    After:
        hidden states -> ReduceSum(Select(index == last, ., 0)) -> MatMul(., head) -> logits
    """

    name = "last-logits"

    count: Literal["one", "input"] = "one"

    def run(self, model: Model) -> Done | Skipped:
        graph = model.graph
        tokens, result = token_input(graph), graph.writes.get(_LOGITS)
        if result is not None and selects_undeclared(model):
            rewriter = model.rewriter()
            rewriter.resize_port(result, [None, 1, None])
            rewriter.finish()
            return Done({"outputs declared": 1})
        head = head_of(graph, result) if result is not None else None
        if tokens is None or result is None or head is None:
            return Skipped("the model has no output logits that is a product of hidden states and weights")
        hidden = head.source()
        if hidden.rank != 3 or _is_one(hidden) or _is_one(result.source()):
            return Skipped(
                "the model already computes the logits of one token only"
                if hidden.rank == 3
                else "hidden states are not [batch, length, hidden]"
            )
        rewriter = model.rewriter()
        if self.count == "input":
            if _COUNT in graph.parameters:
                return Skipped(f"the model already has an input {_COUNT}")
            rewriter.redirect(head, 0, _last_by_count(rewriter, hidden))
            rewriter.finish()
            return Done({"outputs cut": 1})
        rewriter.redirect(head, 0, _last(rewriter, hidden, StepBuilder(model, rewriter)))
        rewriter.resize_port(result, [None, 1, None])
        rewriter.finish()
        return Done({"outputs cut": 1})


def _is_one(value: Value) -> bool:
    return value.shape is not None and len(value.shape) == 3 and value.shape[1] == 1


def _last_by_count(rewriter: Rewriter, hidden: Value) -> Handle:
    write = rewriter.under("last_logits")
    count = rewriter.input(_COUNT, "i64", [])
    start = write.op("Negative", write.op("Unsqueeze", count, axes=[0]), label="start")
    return write.slice(hidden, start, None, 1, label="last")


def _last(rewriter: Rewriter, hidden: Value, step: StepBuilder) -> Handle:
    write = rewriter.under("last_logits")
    if step.mask is None:
        return write.slice(hidden, -1, None, 1, label="last")
    indices = write.op("Range", 0, step.scalar("length"), 1, label="places")
    counted = write.op("Select", write.op("Convert", step.new_columns, to="boolean"), indices, 0, label="counted")
    last = write.op("ReduceMax", counted, axes=[1], keep=True, label="place")
    chosen = write.op("Unsqueeze", write.op("Equal", indices, last), axes=[2], label="is_last")
    zero = write.number(0.0, hidden.element_type)
    return write.op("ReduceSum", write.op("Select", chosen, hidden, zero), axes=[1], keep=True, label="last")
