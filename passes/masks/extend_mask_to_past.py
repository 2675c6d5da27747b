"""The pass `extend-mask-to-past`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from graphpass.analysis.attention.find import find_attention
from graphpass.analysis.caches.stepping import weighs_new_tokens
from graphpass.analysis.equations.token_weights import find_weighing
from graphpass.analysis.masks.facts import mask_facts
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.inputs import token_input
from graphpass.ir.rewriter import Handle, Writer
from graphpass.ir.values import MASKED, fixed_size

_MASK = "attention_mask"


@dataclass(frozen=True)
class ExtendMaskToPast(Pass[OpenVINOModel]):
    """Let ``attention_mask`` cover past and new tokens if it stands for the new ones alone.

    optimum-intel traces zamba2 so that the mask weighs the hidden states of its linear layers as it is: at a decode
    step it has to be ``[batch, 1]``, which openvino.genai and NPUW do not feed, and padding in the past is attended to.
    After this pass linear layers take the mask's last columns, and attention sees each position of the past that the
    mask counts. A mask of the new tokens alone goes on meaning what it meant.

    Its export of lfm2_moe weighs several tokens by the mask's first columns, and one by none, while attention reads all
    columns: several tokens after a padded past come out wrong. After this pass each is weighed by its own column.

    Shapes:
        attention_mask i64 ``[batch, total]`` instead of ``[batch, length]``; masks of attention ``[batch, 1, length,
        total]``

    Before:
        attention_mask -> Slice(0 : length) -> Unsqueeze -> Multiply(hidden states)
        attention_mask -> .. -> Select(., lowest) ``[batch, 1, length, length]`` -> ScaledDotProductAttention
    After:
        attention_mask -> Slice(total - length :) -> Slice(0 : length) -> Unsqueeze -> Multiply(hidden states)
        LogicalAnd(place of the key <= place of the query, attention_mask) -> Select(0, -65504)
        -> ScaledDotProductAttention

    Before:
        attention_mask -> Slice(0 : length) -> Unsqueeze -> Select(length = 1, 1, .) -> Multiply(hidden states)
    After:
        attention_mask -> Slice(-length :) -> Unsqueeze -> Multiply(hidden states)
    """

    name = "extend-mask-to-past"
    dialect = "openvino"

    def run(self, model: OpenVINOModel) -> Done | Skipped:
        graph = model.graph
        tokens, mask = token_input(graph), graph.parameters.get(_MASK)
        weights = model.analysis(find_weighing).of_others
        if mask is None or not (weights or any(True for _ in weighs_new_tokens(graph))):
            return Done()
        if tokens is None:
            return Skipped("the model has no input input_ids whose length says which tokens are new")
        if weights:
            return _weigh_by_own_columns(model, tokens, mask, weights)
        attention = [found.node for found in model.analysis(find_attention)]
        for node in attention:
            if (reason := _obstacle(graph, node)) is not None:
                return Skipped(f"the mask of {node.name} cannot be written anew: {reason}")
        rewriter = model.rewriter()
        write = rewriter.under(_MASK)
        total = write.size(mask, 1, "total")
        past = write.op("Subtract", total, write.size(tokens, 1, "new"), label="past")
        visible = _visible(write, mask, past, total)
        new = write.slice(mask, past, total, axis=1, label="of_new")
        for use in graph.uses(mask):
            rewriter.redirect(use.node, use.port, new)
        written: dict[str, Handle] = {}
        for node in attention:
            kind = node.source().element_type
            if kind not in written:
                numbers = write.number(0.0, kind), write.number(MASKED, kind)
                written[kind] = write.op("Select", visible, *numbers, label=kind)
            rewriter.redirect(node, 3, written[kind])
        rewriter.finish()
        return Done({"masks of attention": len(attention)})


def _weigh_by_own_columns(model: OpenVINOModel, tokens: Value, mask: Value, weights: Iterable[Value]) -> Done:
    rewriter = model.rewriter()
    write = rewriter.under(_MASK)
    start = write.op("Negative", write.size(tokens, 1, "new"))
    own = write.slice(mask, start, None, axis=1, label="of_new")
    made: dict[tuple[int, str], Handle] = {}
    for value in dict.fromkeys(weights):
        channels, kind = 2 if fixed_size(value, 2) == 1 else 1, value.element_type
        if (channels, kind) not in made:
            column = write.op("Unsqueeze", own, axes=[channels])
            made[channels, kind] = write.op("Convert", column, to=kind, label=f"weights_{channels}_{kind}")
        rewriter.replace(value, made[channels, kind])
    rewriter.finish()
    return Done({"weights of tokens": len(set(weights))})


def _obstacle(graph: Graph, node: Node) -> str | None:
    if node.op != "ScaledDotProductAttention":
        return f"it is computed by {node.op}: run fuse-attention"
    mask = node.input(3)
    if mask is None or node.attributes["causal"]:
        return "it has none of its own"
    facts = mask_facts(graph, mask)
    if facts.unknown is not None or facts.windows or facts.parts != {"causal", "input"}:
        return "it says more than what is later and what is padding"
    return None


def _visible(write: Writer, mask: Value, past: Handle, total: Handle) -> Handle:
    """Make the condition that a query sees a key, boolean ``[batch, 1, length, total]``."""
    start, end = (write.op("Squeeze", size, 0) for size in (past, total))
    keys = write.op("Unsqueeze", write.op("Range", 0, end, 1), axes=[0, 1, 2], label="keys")
    queries = write.op("Unsqueeze", write.op("Range", start, end, 1), axes=[0, 1, 3], label="queries")
    causal = write.op("LessEqual", keys, queries, label="causal")
    counted = write.op("Unsqueeze", write.op("Convert", mask, to="boolean"), axes=[1, 2], label="counted")
    return write.op("LogicalAnd", causal, counted, label="visible")
