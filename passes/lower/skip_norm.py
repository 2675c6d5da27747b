"""Lower SkipSimplifiedLayerNormalization in types of 16 bits."""

from __future__ import annotations

from graphpass.ir.values import HALVES
from graphpass.passes.lower.lowered_operator import LoweredOperator

_INPUT, _SKIP, _GAMMA, _BIAS = range(4)
_RESULT, _MEAN, _DEVIATION, _SUM = range(4)


def is_narrow(operator: LoweredOperator) -> bool:
    """Return whether the operator's hidden states have a 16-bit type."""
    value = operator.value(_INPUT)
    return value is not None and value.element_type in HALVES


def lower_skip_norm(operator: LoweredOperator) -> None:
    """Lower com.microsoft SkipSimplifiedLayerNormalization to Add and SimplifiedLayerNormalization.

    OpenVINO's frontend (2026.4.1) rounds the operator's epsilon to the type of hidden states: in f16, 1e-6 becomes 1.3
    % larger, and 1e-8 becomes 0. The epsilon of SimplifiedLayerNormalization stays f32.

    Shapes:
        input ``[batch, length, hidden]``, skip the same or broadcastable, gamma and bias ``[hidden]``

    Before:
        SkipSimplifiedLayerNormalization(input, skip, gamma, bias)
    After:
        SimplifiedLayerNormalization(input + skip + bias, gamma), and the sum

    Raises:
        UnsupportedError: GP341, the mean or the inverse deviation has users.
    """
    outputs = () if operator.node is None else operator.node.outputs[_MEAN : _DEVIATION + 1]
    if any(operator.rewriter.graph.uses(value) for value in outputs):
        raise operator.refusal("its mean or inverse deviation has users")
    write = operator.write
    total = write.op("Add", operator.read(_INPUT), operator.read(_SKIP), label="sum")
    if (bias := operator.read(_BIAS)) is not None:
        total = write.op("Add", total, bias, label="sum_with_bias")
    epsilon = operator.attribute("epsilon", 1e-5)
    norm = write.op(
        "SimplifiedLayerNormalization", total, operator.read(_GAMMA), label="norm", domain="", axis=-1, epsilon=epsilon
    )
    operator.replace(_SUM, total)
    operator.replace(_RESULT, norm)
