"""The pass `fuse-selective-ssm`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.equations.linear_attention import find_chunked_attention
from graphpass.analysis.equations.linear_equation import LinearAttention
from graphpass.analysis.symbolic.folding import fold
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.selective_ssm import SelectiveSSM
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Graph, Value
from graphpass.ir.operators import KEEPS_ORDER
from graphpass.passes.attention.linear_operands import LinearOperands, rewrite_layers


@dataclass(frozen=True)
class FuseSelectiveSSM(Pass[OpenVINOModel]):
    """Write Mamba-2 over one chunk of tokens as the Loop that paged attention supports.

    SDPAToPagedAttention finds the states of Mamba-2 only in a Loop over tokens with the operators that optimum-intel
    writes. Other exporters write matrix products over chunks, as PyTorch computes it. For runtimes without paged
    attention, `rechunk-linear-attention` is faster.

    Chunks are found as in `fuse-linear-attention`, by sampled results. The logarithm of the decay must be the product
    of a constant per head and the time step, which also scales the value.

    Source: ``fuse_selective_ssm.cpp`` and ``paged_selective_ssm_fusion.cpp`` of openvino.

    Shapes:
        key and query ``[batch, tokens, heads, key_dim]``, value ``[batch, tokens, heads, value_dim]``, time step
        ``[batch, tokens, heads]``, state ``[batch, heads, value_dim, key_dim]``

    Before:
        Pad to one chunk -> Exp(CumSum(rate * step)), MatMul .. -> output, present
    After:
        Loop(Exp(rate * step), step * key x value, query, state) -> output, present
    """

    name = "fuse-selective-ssm"
    dialect = "openvino"

    def run(self, model: OpenVINOModel) -> Done:
        graph = model.graph
        found = {
            name: recurrence
            for name, recurrence in model.analysis(find_chunked_attention).items()
            if isinstance(recurrence, LinearAttention) and recurrence.chunk is not None
        }
        count, notes = rewrite_layers(model, found, _write, lambda recurrence: _why_not(graph, recurrence))
        return Done({"layers fused": count} if count else {}, notes)


def _why_not(graph: Graph, recurrence: LinearAttention) -> str | None:
    if recurrence.corrects or recurrence.groups > 1 or recurrence.scale != 1.0 or not recurrence.transposed:
        return f"its rule is {recurrence.rule}, and its form not that of Mamba-2"
    return None if _time_step(graph, recurrence) else "no time step scales both its value and the log of its decay"


def _time_step(graph: Graph, recurrence: LinearAttention) -> tuple[Value, Value, Value] | None:
    """Return the rate of the decay, the time step, and the unscaled value."""
    decay = recurrence.decay
    if decay is None or decay.functions != ("Exp",) or decay.width != 1:
        return None
    log, scaled = graph.producer(decay.source), graph.producer(recurrence.value.source)
    if log.op != "Multiply" or scaled.op != "Multiply" or recurrence.scales:
        return None
    for rate, step in (log.sources, log.sources[::-1]):
        constant = fold(graph, rate)
        if constant is None or constant.size != recurrence.heads:
            continue
        for value, factor in (scaled.sources, scaled.sources[::-1]):
            if graph.look_through(factor, KEEPS_ORDER) == graph.look_through(step, KEEPS_ORDER) and value.rank == 4:
                return rate, step, value
    return None


def _write(operands: LinearOperands) -> None:
    recurrence, write, graph = operands.recurrence, operands.write, operands.graph
    found = _time_step(graph, recurrence)
    assert found is not None
    rate, step, value = found
    heads, key_dim, value_dim = recurrence.heads, recurrence.key_dim, recurrence.value_dim
    ssm = SelectiveSSM(
        rate=write.op("Reshape", rate, [heads]),
        step=write.op("Reshape", step, [0, 0, heads]),
        key=write.op("Reshape", operands.key(), [0, 0, heads, key_dim]),
        value=write.op("Reshape", value, [0, 0, heads, value_dim]),
        query=write.op("Reshape", operands.query(), [0, 0, heads, key_dim]),
        state=operands.stored(),
    )
    output, present = ssm.write(f"{operands.loop}/SelectiveSSM")
    operands.replace(write.op("Reshape", output, [0, 0, heads * value_dim]), present, is_stored=True)
