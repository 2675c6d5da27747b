"""The pass `fuse-gated-delta-net`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from graphpass.analysis.equations.linear_attention import find_chunked_attention, find_linear_attention
from graphpass.analysis.equations.linear_equation import LinearAttention
from graphpass.analysis.symbolic.folding import fold_scalar
from graphpass.dialects.openvino.gated_delta_net import GatedDeltaNet
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import Miss
from graphpass.ir.operators import MOVES, RECURRENCES
from graphpass.ir.writer import Handle
from graphpass.passes.attention.linear_operands import LinearOperands, rewrite_layers

#: Axes of a state: batch, heads, keys, values.
_STATE_RANK = 4

#: Relative tolerance of the scale of queries: f32 rounds it.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class FuseGatedDeltaNet(Pass[OpenVINOModel]):
    """Write loops and chunks that compute gated delta nets in the form that OpenVINO fuses.

    OpenVINO's plugins replace a Loop by GatedDeltaNet if it has the operators that optimum-intel writes, in the same
    order and versions; SDPAToPagedAttention finds only the states of such Loops. Other loops over tokens, such as
    those of ONNX's Scan, are executed as loops, and a prompt takes many times as long.

    Loops and chunks are found as in `fuse-linear-attention`, by operators and by sampled results. The pass rewrites
    the delta rule with one decay per head or none. Other rules are unchanged; `rechunk-linear-attention` rewrites their
    chunks. Chunks whose states decay row by row (Kimi Linear) become a Loop that OpenVINO does not replace, and that
    accepts any number of tokens.

    Source: ``fuse_gated_delta_net.cpp`` and ``paged_gated_delta_net_fusion.cpp`` of openvino.

    Shapes:
        query and key ``[batch, tokens, heads * key_dim]``, value ``[batch, tokens, heads * value_dim]``, decay and beta
        ``[batch, tokens, heads]``, state ``[batch, heads, key_dim, value_dim]``

    Before:
        Loop or TensorIterator over tokens, or a chunk of them:
        state = decay * state; state += key x (beta * (value - key @ state)); query @ state
    After:
        Loop(query / key_dim ** 0.5, key, value, log of decay, beta, state) -> output, present
    """

    name = "fuse-gated-delta-net"
    dialect = "openvino"

    def run(self, model: OpenVINOModel) -> Done:
        recurrences = model.analysis(find_linear_attention)
        left = {node.called for node in model.graph.of_op("Loop", "TensorIterator") if _is_found(node)}
        left |= {name for name in model.analysis(find_chunked_attention) if _is_rechunked(recurrences[name])}
        recurrences = {name: recurrence for name, recurrence in recurrences.items() if name not in left}
        count, notes = rewrite_layers(model, recurrences, _write, _why_not)
        return Done({"layers fused": count} if count else {}, notes)


def _is_found(loop: Node) -> bool:
    """Return whether ``loop`` is already in a form that OpenVINO replaces."""
    ranks = {port: value.rank for port, value in enumerate(loop.inputs) if value is not None}
    return any(len(loop.inputs) == inputs and ranks[state] == _STATE_RANK for inputs, state in RECURRENCES)


def _is_rechunked(recurrence: LinearAttention | Miss) -> bool:
    """Return whether a chunk is left to `rechunk-linear-attention`."""
    return isinstance(recurrence, LinearAttention) and not recurrence.corrects


def _why_not(recurrence: LinearAttention) -> str | None:
    if not recurrence.corrects:
        return f"its update rule is {recurrence.rule}, and GatedDeltaNet requires a delta rule"
    if recurrence.groups > 1:
        return f"{recurrence.groups} query heads read each state, and GatedDeltaNet supports 1"
    if recurrence.chunk is None and recurrence.decay is not None and recurrence.decay.width > 1:
        return "rows of a state decay differently, and GatedDeltaNet supports one decay a head"
    return None


def _write(operands: LinearOperands) -> None:
    recurrence, write = operands.recurrence, operands.write
    scaled = _scaled(operands.graph, operands.source(recurrence.query), recurrence.key_dim)
    if recurrence.scale == 1.0 and scaled is not None:
        operands.bypass(scaled)
    heads, key_dim = recurrence.heads, recurrence.key_dim
    key = operands.key()
    beta = operands.beta(key)
    if recurrence.betas and all(role.width == 0 and not role.numbers for role in recurrence.betas):
        beta = operands.for_heads(beta)
    decay = recurrence.decay
    gate = operands.constant([0.0], key) if decay is None else operands.log_decay(decay, key)
    by_row = decay is not None and decay.width > 1

    def laid_out(tensor: Handle, dim: int) -> Handle:
        return write.op("Transpose", write.op("Reshape", tensor, [0, 0, heads, dim]), order=[0, 2, 1, 3])

    query = laid_out(operands.query(), key_dim)
    if recurrence.scale == 1.0 and scaled is None:
        query = write.op("Multiply", query, write.number(math.sqrt(key_dim), "f32"))
    # The matcher requires the scale in these operators.
    size = write.op("Convert", write.op("Gather", write.op("ShapeOf", query), write.number(3, "i64"), axis=0), to="f32")
    net = GatedDeltaNet(
        query=write.op("Divide", query, write.op("Power", size, write.number(0.5, "f32"))),
        key=laid_out(key, key_dim),
        value=laid_out(operands.value(), recurrence.value_dim),
        gate=laid_out(gate, key_dim) if by_row else write.op("Transpose", gate, order=[0, 2, 1]),
        beta=write.op("Transpose", beta, order=[0, 2, 1]),
        state=operands.past(),
    )
    output, present = net.write(f"{operands.loop}/GatedDeltaNet")
    rows = write.op("Transpose", output, order=[0, 2, 1, 3])
    operands.replace(write.op("Reshape", rows, [0, 0, heads * recurrence.value_dim]), present)


def _scaled(graph: Graph, query: Value, key_dim: int) -> Node | None:
    """Return the operator that divides ``query`` by ``sqrt(key_dim)``, if any."""
    value = query
    while len(graph.uses(value)) == 1:
        node = graph.producer(value)
        if node.op in {"Divide", "Multiply"}:
            factor = fold_scalar(graph, node.source(1))
            if factor is None:
                return None
            scale = 1 / factor if node.op == "Divide" else factor
            return node if math.isclose(scale, key_dim**-0.5, rel_tol=_ROUNDING) else None
        if node.op not in MOVES:
            return None
        value = node.source()
    return None
