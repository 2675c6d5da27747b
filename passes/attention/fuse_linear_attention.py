"""The pass `fuse-linear-attention`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.equations.linear_attention import find_linear_attention
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.conditions import OPSET_13
from graphpass.engine.passes import Done, Pass
from graphpass.passes.attention.linear_operands import LinearOperands, rewrite_layers


@dataclass(frozen=True)
class FuseLinearAttention(Pass[OnnxModel]):
    """Replace loops and chunks that compute linear attention by LinearAttention of ONNX Runtime.

    Loop and Scan execute their body once per token. For 16 heads of 128 x 128 with the gated delta rule, the operator
    takes 1/6 of their time for a prompt of 256 tokens, and 0.4 of it for a step (ONNX Runtime 1.32, 2 cores).

    Supported are:

    - rules: linear, gated (GLA, RetNet, Mamba-2), delta, gated delta (Gated DeltaNet, as in Qwen3-Next)
    - one decay per head, or one for each row of its state
    - several query heads for one state
    - states with values before keys
    - results that are stacked, or written into a buffer

    A loop is replaced only if the structural match and the numerical check agree: its operators multiply and add as
    the rule does, and its outputs equal the rule's on random inputs of 1, 3 and 4 tokens. Other loops are unchanged and
    reported.

    PyTorch's models pad the tokens to a chunk, for example of 64 tokens, and compute the chunk by matrix products and
    an unrolled inversion. An export contains one chunk: more tokens in a step fail or are computed incorrectly. The
    operator accepts any number of tokens. A chunk is replaced if its results equal those of the rule.

    Shapes:
        query ``[batch, tokens, heads * groups * key_dim]``, key and value ``[batch, tokens, heads * dim]``, decay and
        beta ``[batch, tokens, heads]``, state ``[batch, heads, key_dim, value_dim]``

    Before:
        Loop or Scan over tokens, or a chunk of them:
        state = decay * state; state += key x (beta * (value - key @ state)); query @ state
    After:
        LinearAttention(query, key, value, past, log of decay, beta) -> output, present
    """

    name = "fuse-linear-attention"
    dialect = "onnx"
    only_for = (OPSET_13,)

    def run(self, model: OnnxModel) -> Done:
        recurrences = model.analysis(find_linear_attention)
        count, notes = rewrite_layers(model, recurrences, _fuse)
        return Done({"layers fused": count, "layers left": len(notes)} if recurrences else {}, notes)


def _fuse(operands: LinearOperands) -> None:
    recurrence = operands.recurrence
    query, key = operands.query(), operands.key()
    inputs = [query, key, operands.value(), operands.past()]
    inputs += [None if recurrence.decay is None else operands.log_decay(recurrence.decay, key)]
    if recurrence.corrects:
        inputs.append(operands.beta(key))
    while inputs[-1] is None:
        inputs.pop()
    output, present = operands.write.outputs(
        "LinearAttention",
        *inputs,
        count=2,
        domain="com.microsoft",
        update_rule=recurrence.rule,
        q_num_heads=recurrence.heads * recurrence.groups,
        kv_num_heads=recurrence.heads,
        scale=recurrence.scale,
    )
    operands.replace(output, present)
