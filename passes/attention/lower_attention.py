"""The pass `lower-attention`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Node, Value
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.values import MASKED, REALS, fixed_size
from graphpass.ir.writer import Operand, Writer
from graphpass.passes.attention.repeated_heads import repeated_heads

_QUERY, _KEY, _VALUE, _MASK = range(4)


@dataclass(frozen=True)
class LowerAttention(Pass[OnnxModel]):
    """Lower ONNX's Attention to MatMul and Softmax.

    ONNX Runtime's WebGPU provider has no kernel for Attention (onnxruntime-ep-webgpu 0.4.0): the CPU executes it, and
    keys and values of all positions are copied to the CPU at each step.

    Attention is unchanged, with a note, if

    - it appends to a past itself; run `separate-past` first
    - it masks causally by an attribute
    - it joins heads in the last axis

    Shapes:
        query ``[batch, heads, length, head_dim]``; key, value ``[batch, kv_heads, sequence, head_dim]``; mask that
        broadcasts to ``[batch, heads, length, sequence]``

    Before:
        Attention(query, key, value, mask)
    After:
        MatMul(Softmax(MatMul(query, Transpose(key)) * scale + mask), value)
    """

    name = "lower-attention"
    dialect = "onnx"

    def run(self, model: OnnxModel) -> Done:
        rewriter, notes, count = model.rewriter(), [], 0
        for node in model.graph.of_op("Attention"):
            if (reason := _why_not(node)) is not None:
                notes.append(f"{node.called} stays unchanged: {reason}")
                continue
            rewriter.replace(node.outputs[0], _lowered(rewriter, node))
            count += 1
        rewriter.finish()
        return Done({"attention lowered": count, "attention left": len(notes)}, tuple(notes))


def _why_not(node: Node) -> str | None:
    if any(value is not None for value in node.inputs[4:]) or len(node.outputs) > 1:
        return "it has a past, lengths or scores inside"
    if node.attributes.get("is_causal"):
        return "it masks causally by an attribute"
    if any(value is None or value.rank != 4 for value in node.inputs[:_MASK]):
        return "its operands have no axis of heads"
    sizes = [fixed_size(node.source(port), axis) for port, axis in ((_QUERY, 1), (_KEY, 1), (_QUERY, 3))]
    return None if all(sizes) else "the number or size of its heads is unknown"


def _lowered(rewriter: Rewriter, node: Node) -> Operand:
    write, query = rewriter.under(node.name), node.source(_QUERY)
    heads, size = fixed_size(query, 1) or 0, fixed_size(query, 3) or 0
    shared = fixed_size(node.source(_KEY), 1) or heads
    keys, values = (repeated_heads(write, node.source(port), shared, heads // shared) for port in (_KEY, _VALUE))
    scale = node.attributes.get("scale") or size**-0.5
    transposed = write.op("Transpose", keys, order=[0, 1, 3, 2], label="keys")
    scores = write.op(
        "Multiply", write.op("MatMul", query, transposed, label="scores"), write.number(scale, query.element_type)
    )
    if cap := node.attributes.get("softcap"):
        limit = write.number(cap, query.element_type)
        scores = write.op("Multiply", write.op("Tanh", write.op("Divide", scores, limit)), limit, label="capped")
    if (mask := node.input(_MASK)) is not None:
        scores = write.op("Add", scores, _bias(write, mask, query.element_type), label="masked")
    return write.op("MatMul", write.op("Softmax", scores, axis=-1), values, label="result")


def _bias(write: Writer, mask: Value, element_type: str) -> Operand:
    if mask.element_type in REALS:
        return mask
    numbers = (write.number(number, element_type) for number in (0.0, MASKED))
    return write.op("Select", mask, *numbers, label="bias")
