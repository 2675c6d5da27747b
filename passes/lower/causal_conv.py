"""Lower CausalConvWithState."""

from __future__ import annotations

from graphpass.analysis.equations.row_lengths import only_summed_mask
from graphpass.ir.graph import Value
from graphpass.ir.writer import Handle
from graphpass.passes.lower.lowered_operator import LoweredOperator

_INPUT, _WEIGHT, _BIAS, _PAST = range(4)


def lower_causal_conv(operator: LoweredOperator) -> None:
    """Lower CausalConvWithState, of ONNX or of com.microsoft, to Concat, Conv and Slice.

    OpenVINO's frontend has no rule for the operator (2026.4.1). Bias, activation, dilation and the layout with channels
    last are supported.

    The operator has no mask operand, so that padding updates its state. The lowering sets columns that the model's
    attention mask excludes to 0, the initial value of the state.

    Shapes:
        input ``[batch, channels, length]``, weight ``[channels, 1, kernel]``, state ``[batch, channels, (kernel - 1) *
        dilation]``; with channels last, input and state have their last two axes swapped.

    Before:
        CausalConvWithState(input, weight, bias, past) -> output, present
    After:
        Concat(past, input [* attention_mask]) -> Conv(weight, bias, group=channels) -> [Sigmoid, Mul] -> output
        Concat(past, input) -> Slice(last (kernel - 1) * dilation) -> present

    Raises:
        UnsupportedError: GP341, more than one spatial axis, a window of states, or a weight of unknown shape.
    """
    for name, usual in (("ndim", 1), ("state_window", 0)):
        if operator.attribute(name, usual) != usual:
            raise operator.refusal(f"it has {name} = {operator.attribute(name)}")
    activation = operator.attribute("activation", "none")
    if activation not in {"none", "silu", "swish"}:
        raise operator.refusal(f"its activation is {activation}")
    weight, value = operator.value(_WEIGHT), operator.value(_INPUT)
    channels, kernel = (
        operator.size(_WEIGHT, axis) if weight is not None and weight.rank == 3 else None for axis in (0, 2)
    )
    if weight is None or not isinstance(channels, int) or not isinstance(kernel, int):
        raise operator.refusal("the shape of its weight is unknown")
    swaps = bool(operator.attribute("channels_last", 0))
    if swaps and (value is None or value.rank != 3):
        raise operator.refusal("its channels are last, and its input does not have 3 axes")
    dilation = operator.attribute("dilation", 1)
    state = (kernel - 1) * dilation

    def swapped(tensor: Handle) -> Handle:
        return operator.write.op("Transpose", tensor, order=[0, 2, 1]) if swaps else tensor

    new = _unpadded(operator, weight.element_type, axis=1 if swaps else 2)
    past = operator.read(_PAST)
    if past is None:
        whole = operator.write.op("Pad", swapped(new), [0, 0, state], [0, 0, 0])
    else:
        whole = operator.write.op("Concat", swapped(past), swapped(new), axis=2)
    operands = [operand for operand in (whole, operator.read(_WEIGHT), operator.read(_BIAS)) if operand is not None]
    result = operator.write.op(
        "Conv", *operands, group=channels, kernel_shape=[kernel], dilations=[dilation], pads=[0, 0]
    )
    if activation != "none":
        result = operator.write.op("Multiply", result, operator.write.op("Sigmoid", result))
    operator.replace(0, swapped(result))
    # A start of -0 would keep all columns; with state 0 the slice has to be empty.
    operator.replace(1, swapped(operator.write.slice(whole, -state if state else 2**63 - 1, None, 2)))


def _unpadded(operator: LoweredOperator, element_type: str, axis: int) -> Handle:
    new, write = operator.read(_INPUT), operator.write
    mask: Value | None = operator.once("mask", lambda: only_summed_mask(operator.rewriter.graph))
    if mask is None:
        return new
    kept = write.slice(mask, write.op("Negative", write.size(new, axis)), None, 1)
    kept = write.op("Unsqueeze", kept, axes=[3 - axis])
    return write.op("Multiply", new, write.op("Convert", kept, to=element_type))
