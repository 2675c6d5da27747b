"""The pass `extend-mask-to-past`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from graphpass.analysis.attention.mask import AttentionMask, plain_mask
from graphpass.analysis.caches.masks import find_masks
from graphpass.analysis.caches.step_tokens import weighs_new_tokens
from graphpass.analysis.equations.token_weights import find_weighing
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.ir.graph import Value
from graphpass.ir.inputs import token_input
from graphpass.ir.miss import Miss
from graphpass.ir.values import MASKED, fixed_size
from graphpass.ir.writer import Handle
from graphpass.passes.attention.step_builder import StepBuilder

_MASK = "attention_mask"


@dataclass(frozen=True)
class ExtendMaskToPast(Pass[OpenVINOModel]):
    """Extend an ``attention_mask`` of the new tokens to past and new tokens.

    In optimum-intel's exports of zamba2, linear layers multiply their hidden states by the whole mask. In a decode step
    the mask has to be ``[batch, 1]``, which openvino.genai and NPUW do not feed, and tokens attend to padding in the
    past. After this pass linear layers read the mask's last columns, and attention attends to the past positions that
    the mask counts. The results for a mask of only the new tokens are unchanged.

    In optimum-intel's export of lfm2_moe, several tokens are multiplied by the mask's first columns, a single token by
    none, and attention reads all columns: several tokens after a padded past are computed incorrectly. After this pass
    each token is multiplied by its own column.

    Shapes:
        attention_mask i64 ``[batch, total]`` instead of ``[batch, length]``; masks of attention ``[batch, 1, length,
        total]``

    Before:
        attention_mask -> Slice(0 : length) -> Unsqueeze -> Multiply(hidden states)
        attention_mask -> .. -> Select(., lowest) [batch, 1, length, length] -> ScaledDotProductAttention
    After:
        attention_mask -> Slice(total - length :) -> Slice(0 : length) -> Unsqueeze -> Multiply(hidden states)
        LogicalAnd(slot of the key <= slot of the query, attention_mask) -> Select(0, -65504)
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
            return Skipped("the model has no input input_ids, whose length is the number of new tokens")
        if weights:
            return _multiply_by_own_columns(model, weights)
        masks = model.analysis(find_masks)
        for effective in masks:
            if (reason := _obstacle(effective)) is not None:
                return Skipped(f"the mask of {effective.node.name} cannot be rewritten: {reason}")
        rewriter = model.rewriter()
        write, step = rewriter.under(_MASK), StepBuilder(model, rewriter)
        visible = step.visible
        for use in graph.uses(mask):
            rewriter.redirect(use.node, use.port, step.new_columns)
        written: dict[str, Handle] = {}
        for node in (mask.node for mask in masks):
            kind = node.source().element_type
            if kind not in written:
                numbers = write.number(0.0, kind), write.number(MASKED, kind)
                written[kind] = write.op("Select", visible, *numbers, label=kind)
            rewriter.redirect(node, 3, written[kind])
        rewriter.finish()
        return Done({"masks of attention": len(masks)})


def _multiply_by_own_columns(model: OpenVINOModel, weights: Iterable[Value]) -> Done:
    rewriter = model.rewriter()
    write = rewriter.under(_MASK)
    own = StepBuilder(model, rewriter).new_columns
    made: dict[tuple[int, str], Handle] = {}
    for value in dict.fromkeys(weights):
        channels, kind = 2 if fixed_size(value, 2) == 1 else 1, value.element_type
        if (channels, kind) not in made:
            column = write.op("Unsqueeze", own, axes=[channels])
            made[channels, kind] = write.op("Convert", column, to=kind, label=f"weights_{channels}_{kind}")
        rewriter.replace(value, made[channels, kind])
    rewriter.finish()
    return Done({"weights of tokens": len(set(weights))})


def _obstacle(mask: AttentionMask) -> str | None:
    node = mask.node
    if node.op != "ScaledDotProductAttention":
        return f"it is computed by {node.op}: run fuse-attention"
    if node.input(3) is None or node.attributes["causal"]:
        return "it has no mask operand, or is causal by attribute"
    if isinstance(plain_mask(mask), Miss) or mask.window is not None or not mask.is_padded:
        return "it is not the causal condition with padding"
    return None
