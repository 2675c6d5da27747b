"""The pass `lower-causal-conv`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from graphpass.analysis.masks.padding_mask import only_summed_mask
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.rewrite import NodeWriter, attributes, input_at, node_name, rewrite_nodes
from graphpass.dialects.onnx.tensors import element_code
from graphpass.engine.passes import Changed, Pass, PassResult, Unchanged
from graphpass.errors import UnsupportedError
from graphpass.ir.types import Dialect, Dimension

if TYPE_CHECKING:
    import onnx

    from graphpass.ir.graph import Node, Value

__all__ = ["LowerCausalConv"]

_INPUT, _WEIGHT, _BIAS, _PAST = range(4)


@dataclass(frozen=True)
class LowerCausalConv(Pass[OnnxModel]):
    """Write CausalConvWithState, of ONNX or of com.microsoft, as Concat, Conv and Slice.

    OpenVINO's frontend has no rule for the operator (2026.4.1). Kept are bias, activation, dilation and the layout with
    channels last.

    Shapes:
        input ``[batch, channels, length]``, weight ``[channels, 1, kernel]``, state ``[batch, channels, (kernel - 1) *
        dilation]``; with channels last, input and state have their last two axes swapped.

    The operator knows no padding, so that in a batch a row's padding would be in its state. Where the model's attention
    tells which positions count (and is not lowered yet), the others are set to 0, which is what the state starts with.

    Before:
        CausalConvWithState(input, weight, bias, past) -> output, present
    After:
        Concat(past, input [* attention_mask]) -> Conv(weight, bias, group=channels) -> [Sigmoid, Mul] -> output
        Concat(past, input) -> Slice(last (kernel - 1) * dilation) -> present

    Raises:
        UnsupportedError: GP340 an opset before 13; GP341 more than one spatial axis, a window of states, or a weight
            whose shape is not known.
    """

    name: ClassVar[str] = "lower-causal-conv"
    dialect: ClassVar[Dialect | None] = "onnx"

    def run(self, model: OnnxModel) -> PassResult:
        """See `Pass.run`."""
        mask = only_summed_mask(model.graph)
        known = {node.outputs[0].name: node for node in model.graph.of_op("CausalConvWithState")}
        count = rewrite_nodes(
            model,
            lambda native: native.op_type == "CausalConvWithState",
            lambda native, writer: _write(known.get(native.output[0]), native, writer, mask),
        )
        return Changed(model, {"convolutions lowered": count}) if count else Unchanged()


def _refusal(native: onnx.NodeProto, reason: str) -> UnsupportedError:
    return UnsupportedError("GP341", f"{native.op_type} {node_name(native)} cannot be lowered: {reason}")


def _write(node: Node | None, native: onnx.NodeProto, writer: NodeWriter, mask: str | None) -> None:
    given = attributes(native)
    if node is None:
        raise _refusal(native, "it is inside a body or a function")
    for name, usual in (("ndim", 1), ("state_window", 0)):
        if given.get(name, usual) != usual:
            raise _refusal(native, f"it has {name} = {given[name]}")
    activation = given.get("activation", "none")
    if activation not in {"none", "silu", "swish"}:
        raise _refusal(native, f"its activation is {activation}")
    weight, value = node.inputs[_WEIGHT], node.inputs[_INPUT]
    channels, kernel = _sizes(weight)
    if weight is None or not isinstance(channels, int) or not isinstance(kernel, int):
        raise _refusal(native, "the shape of its weight is not known")
    swaps = bool(given.get("channels_last", 0))
    if swaps and (value is None or value.rank != 3):
        raise _refusal(native, "its channels are last, and on more than one axis")
    dilation = given.get("dilation", 1)
    state = (kernel - 1) * dilation
    new = native.input[_INPUT]
    if mask is not None:
        kept = _kept(writer, new, mask, axis=1 if swaps else 2)
        new = writer.op("Mul", new, writer.op("Cast", kept, to=element_code(weight.element_type)))
    whole = _joined(writer, input_at(native, _PAST), new, state, swaps=swaps)
    operands = [whole, native.input[_WEIGHT], *([native.input[_BIAS]] if input_at(native, _BIAS) else [])]
    name = "" if swaps or activation != "none" else native.output[0]
    result = writer.op(
        "Conv", *operands, output=name, group=channels, kernel_shape=[kernel], dilations=[dilation], pads=[0, 0]
    )
    if activation != "none":
        name = "" if swaps else native.output[0]
        result = writer.op("Mul", result, writer.op("Sigmoid", result), output=name)
    if swaps:
        writer.op("Transpose", result, perm=[0, 2, 1], output=native.output[0])
    if len(native.output) > 1 and native.output[1]:
        _write_present(writer, whole, state, native.output[1], swaps=swaps)


def _sizes(weight: Value | None) -> tuple[Dimension, Dimension]:
    """How many channels there are, and how many columns the kernel has."""
    shape = weight.shape if weight is not None else None
    return (shape[0], shape[2]) if shape is not None and len(shape) == 3 else (None, None)


def _kept(writer: NodeWriter, new: str, mask: str, axis: int) -> str:
    """The columns of ``mask`` that belong to ``new``, as they align with it."""
    start = writer.op("Neg", writer.size(new, axis))
    return writer.op("Unsqueeze", writer.slice(mask, start, None, 1), writer.integers([3 - axis]))


def _joined(writer: NodeWriter, past: str, new: str, state: int, *, swaps: bool) -> str:
    """The columns of the past, or zeros, and the new ones, channels first."""
    parts = [part for part in (past, new) if part]
    if swaps:
        parts = [writer.op("Transpose", part, perm=[0, 2, 1]) for part in parts]
    if len(parts) == 2:
        return writer.op("Concat", *parts, axis=2)
    return writer.op("Pad", parts[0], writer.integers([0, 0, state, 0, 0, 0]))


def _write_present(writer: NodeWriter, whole: str, state: int, output: str, *, swaps: bool) -> None:
    # The last none of the columns are those behind the end.
    start = -state if state else 2**63 - 1
    if swaps:
        writer.op("Transpose", writer.slice(whole, start, None, 2), perm=[0, 2, 1], output=output)
    else:
        writer.slice(whole, start, None, 2, output=output)
