"""Find computations of attention: fused operators, and the decomposed form around each Softmax.

The decomposed form is ``softmax(scale * query @ key^T + mask) @ value`` as exporters write it: the scale on either
operand, on both, or on the product; the mask by Add, Subtract or Select, before the scale or after it; a guard after
the Softmax that turns the NaN of rows that are masked whole into 0; conversions around the Softmax; the key transposed
by a Transpose or by the MatMul; a sink, one more column of scores that is dropped after the Softmax; the maximum of
each row subtracted before it.
"""

from __future__ import annotations

from graphpass.analysis.attention.match import match
from graphpass.analysis.attention.softmax import is_attention
from graphpass.analysis.attention.types import OPERATORS, Attention
from graphpass.ir.model import Model
from graphpass.ir.pattern import Miss

__all__ = ["find_attention"]


def find_attention(model: Model) -> tuple[Attention, ...]:
    """Return all attention of ``model``, in execution order.

    A Softmax that is not fed by a product of two activations, or whose result no product reads, is no attention (an
    expert router, a sampler) and is left out.
    """
    graph = model.graph
    found: list[Attention] = []
    for node in graph.nodes:
        if node.op in OPERATORS:
            query, key, value = (*(node.input(port) for port in OPERATORS[node.op]), None, None, None)[:3]
            found.append(Attention(node, node.outputs[0], query, key, value))
        elif node.op == "Softmax" and is_attention(graph, node):
            matched = match(graph, node)
            found.append(Attention(node, node.outputs[0], miss=matched) if isinstance(matched, Miss) else matched)
    return tuple(found)
