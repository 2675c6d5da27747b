"""The pass `expose-alibi`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy

from graphpass.analysis.attention.alibi import is_exposed
from graphpass.analysis.attention.mask import AttentionMask
from graphpass.analysis.caches.masks import find_masks
from graphpass.analysis.caches.step_lengths import MASK
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.passes import Done, Pass
from graphpass.ir.inputs import token_input
from graphpass.ir.values import MASKED
from graphpass.ir.writer import Handle, Writer
from graphpass.passes.attention.step_builder import StepBuilder


@dataclass(frozen=True)
class ExposeAlibi(Pass[OpenVINOModel]):
    """Write ALiBi in the form that paged attention recognizes in a mask.

    Paged attention (openvino.genai's default backend) drops the mask. It keeps slopes that are multiplied with
    positions in a branch of a Select, and silently drops slopes in a sum (alibi_slopes_extractor in
    state_management_pattern.cpp of openvino; observed with 2026.4.1).

    Positions are counted by ``attention_mask``, because NPUW leaves slots of the cache empty; without it, they are the
    slots. Terms that are equal for all keys of a head are removed: a Softmax does not depend on them.

    Shapes:
        mask f32 ``[batch, heads, queries, keys]``; slopes ``[heads]``; attention_mask i64 ``[batch, keys]``

    Before:
        Add(Reshape(Multiply(positions, slopes)), 0 or lowest) -> ScaledDotProductAttention
    After:
        Select(hidden, -65504, Reshape(Reshape(Multiply(slopes, positions)))) -> ScaledDotProductAttention
    """

    name = "expose-alibi"
    dialect = "openvino"

    def run(self, model: OpenVINOModel) -> Done:
        graph = model.graph
        exposed, notes = [], []
        for meaning in model.analysis(find_masks):
            node = meaning.node
            is_alibi = node.op == "ScaledDotProductAttention" and "alibi" in (meaning.parts or ())
            if not is_alibi or is_exposed(graph, node.input(3)):
                continue
            reason = _obstacle(meaning, has_padding=MASK in graph.parameters)
            if reason is None:
                exposed.append((node, meaning.slopes or ()))
            else:
                notes.append(f"ALiBi of {node.name} stays unchanged: {reason}")
        if token_input(graph) is None or not exposed:
            return Done(notes=tuple(notes))
        rewriter = model.rewriter()
        write, step = rewriter.under("alibi"), StepBuilder(model, rewriter)
        hidden = write.op("LogicalNot", step.causal if step.mask is None else step.visible, label="hidden")
        positions = _positions(write, step)
        written: dict[tuple[tuple[float, ...], str], Handle] = {}
        for node, slopes in exposed:
            key = slopes, node.source().element_type
            if key not in written:
                written[key] = _write(rewriter.under(f"{node.name}/alibi"), *key, positions, hidden)
            rewriter.redirect(node, 3, written[key])
        rewriter.finish()
        return Done({"attention with ALiBi": len(exposed)}, tuple(notes))


def _positions(write: Writer, step: StepBuilder) -> Handle:
    """Return the positions of keys, i64 ``[batch, 1, keys]``, or ``[1, 1, keys]`` without padding."""
    if step.mask is None:
        return write.op("Squeeze", step.keys, axes=[1], label="positions")
    shown = write.convert(step.mask, "i64", "shown")
    counted = write.op("Subtract", write.op("CumSum", shown, axis=1), 1, label="counted")
    return write.op("Unsqueeze", write.op("Multiply", counted, shown), axes=[1], label="positions")


def _obstacle(mask: AttentionMask, *, has_padding: bool) -> str | None:
    """Return the reason if the mask is not the causal condition, with padding if any."""
    if not mask.is_causal or mask.window is not None or mask.chunk is not None or mask.residue or mask.has_lengths:
        return "its mask excludes keys other than later keys and padding"
    return None if mask.is_padded or not has_padding else "its mask does not exclude padding"


def _write(write: Writer, slopes: tuple[float, ...], kind: str, positions: Handle, hidden: Handle) -> Handle:
    """Return the mask in the form of OpenVINO's matcher, with slopes as the first operand."""
    constant = write.constant(numpy.array(slopes, "f4").reshape(1, -1, 1), "slopes", kind)
    product = write.op("Multiply", constant, write.convert(positions, kind, "positions"), label="product")
    rows = write.op("Reshape", product, [-1, 1, 0], label="rows")
    shape = write.op("Concat", [-1, len(slopes), 1], write.size(rows, 2, "keys"), axis=0, label="shape")
    added = write.op("Reshape", rows, shape, zero_keeps=False, label="by_head")
    return write.op("Select", hidden, write.number(MASKED, kind, "masked"), added)
