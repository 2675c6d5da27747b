"""The pass `lower-quantized-mixture-of-experts`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.rewrite import NodeWriter, attributes, input_at, node_name, rewrite_nodes
from graphpass.engine.passes import Changed, Pass, PassResult, Unchanged
from graphpass.errors import UnsupportedError
from graphpass.ir.types import Dialect

if TYPE_CHECKING:
    import numpy
    import onnx
    from numpy.typing import NDArray

__all__ = ["LowerQuantizedMixtureOfExperts"]

#: Weights, scales, bias and zero points of the three products.
_PRODUCTS = ((2, 3, 4, 11), (5, 6, 7, 12), (8, 9, 10, 13))
_ROUTER_WEIGHTS = 14

#: What MoE has as well.
_KEPT = {
    "activation_alpha",
    "activation_beta",
    "activation_type",
    "k",
    "normalize_routing_weights",
    "swiglu_fusion",
    "swiglu_limit",
    "use_sparse_mixer",
}

#: DequantizeLinear scales blocks from this version on.
_BLOCKS = 21


@dataclass(frozen=True)
class LowerQuantizedMixtureOfExperts(Pass[OnnxModel]):
    """Write com.microsoft QMoE as MoE on weights behind DequantizeLinear.

    OpenVINO's frontend has no rule for the operator (2026.4.1). Weights keep their bytes, and are declared as what
    they hold: ``[experts, outputs, inputs]`` of 4 or 8 bits instead of bytes.

    Shapes:
        weights u8 ``[experts, outputs, inputs * bits / 8]``, scales ``[experts, outputs]`` or ``[experts, outputs,
        inputs / block_size]``, zero points likewise, packed.

    Before:
        QMoE(input, router_probs, fc1_experts_weights, fc1_scales, ..)
    After:
        MoE(input, router_probs, DequantizeLinear(fc1_experts_weights, fc1_scales, zero points), ..)

    Raises:
        UnsupportedError: GP340 an opset before 13; GP341 weights that are not whole numbers of 4 or 8 bits or no
            initializers, routing weights that are not normalized or have an input of their own, or an opset before 21.
    """

    name: ClassVar[str] = "lower-quantized-mixture-of-experts"
    dialect: ClassVar[Dialect | None] = "onnx"

    def run(self, model: OnnxModel) -> PassResult:
        """See `Pass.run`."""
        stored = {tensor.name: tensor for tensor in model.proto.graph.initializer}
        count = rewrite_nodes(
            model,
            lambda native: native.op_type == "QMoE",
            lambda native, writer: _Experts(native, writer, stored, model).write(),
        )
        return Changed(model, {"mixtures lowered": count}) if count else Unchanged()


class _Experts:
    """One QMoE and what stands for it."""

    def __init__(
        self, native: onnx.NodeProto, writer: NodeWriter, stored: dict[str, onnx.TensorProto], model: OnnxModel
    ) -> None:
        self._native, self._writer, self._stored, self._model = native, writer, stored, model
        self._given: dict[str, Any] = attributes(native)
        self._block = self._given.get("block_size", 0)
        kind = self._given.get("quant_type", "int")
        if kind != "int":
            raise self._refusal(f"its quant_type is {kind}")
        if not self._given.get("normalize_routing_weights", 0):
            # ONNX Runtime's CPU kernel (1.31) normalizes them all the same.
            raise self._refusal("its runtimes disagree about routing weights that are not normalized")
        if writer.opset < _BLOCKS:
            raise self._refusal(f"the model is of opset {writer.opset}, and DequantizeLinear has blocks from 21 on")
        if self._given.get("weights_prepacked", 0) == 1:
            raise self._refusal("its weights are packed for one device")
        if any(input_at(native, port) for port in range(_ROUTER_WEIGHTS, len(native.input))):
            raise self._refusal("it has inputs behind the zero points: routing weights or further scales")

    def _refusal(self, reason: str) -> UnsupportedError:
        native = self._native
        return UnsupportedError("GP341", f"{native.op_type} {node_name(native)} cannot be lowered: {reason}")

    def write(self) -> None:
        """Write the operator's output."""
        from onnx import helper

        native = self._native
        inputs = [native.input[0], native.input[1]]
        for number, (weights, scales, bias, zeros) in enumerate(_PRODUCTS, 1):
            if input_at(native, weights):
                bits = self._given.get(f"fc{number}_expert_weight_bits", self._given.get("expert_weight_bits", 4))
                inputs += [self._wide(weights, scales, zeros, bits), input_at(native, bias)]
        kept = {name: value for name, value in self._given.items() if name in _KEPT}
        name = f"{node_name(native)}/MoE"
        node = helper.make_node("MoE", inputs, [native.output[0]], name, domain="com.microsoft", **kept)
        self._writer.nodes.append(node)

    def _wide(self, weights: int, scales: int, zeros: int, bits: int) -> str:
        """One product's weights in the type of its scales."""
        import onnx

        if bits not in {4, 8}:
            raise self._refusal(f"its weights have {bits} bits")
        weight, scale = self._initializer(weights), self._initializer(scales)
        code = onnx.TensorProto.UINT4 if bits == 4 else onnx.TensorProto.UINT8
        if weight.data_type != code:  # else another operator reads it, too, and it is declared already
            weight.data_type = code
            weight.dims[2] = weight.dims[2] * 8 // bits
        experts, outputs, inputs = weight.dims
        block = self._block or inputs
        shape = [experts, outputs, inputs // block]
        scale.dims[:] = shape
        if input_at(self._native, zeros):
            points = self._unpacked(self._initializer(zeros), shape, bits)
        else:
            import numpy

            points = numpy.full(shape, 1 << (bits - 1), numpy.uint8)
        tensor = onnx.helper.make_tensor(f"{weight.name}/zero_points", code, shape, _packed(points, bits), raw=True)
        if tensor.name not in self._stored:
            self._stored[tensor.name] = tensor
            self._model.proto.graph.initializer.append(tensor)
        parts = weight.name, scale.name, tensor.name
        return self._writer.op("DequantizeLinear", *parts, axis=2, block_size=block)

    def _initializer(self, port: int) -> onnx.TensorProto:
        name = input_at(self._native, port)
        if name not in self._stored:
            raise self._refusal(f"input {port} is {name or 'left out'}, which is no initializer")
        return self._stored[name]

    def _unpacked(self, tensor: onnx.TensorProto, shape: list[int], bits: int) -> NDArray[numpy.uint8]:
        """Zero points one a byte; in the model each row is padded to whole bytes."""
        import numpy
        from onnx import numpy_helper

        folder = self._model.path.parent if self._model.path is not None else ""
        stored = numpy_helper.to_array(tensor, str(folder)).view(numpy.uint8)
        if bits == 4:
            stored = numpy.stack([stored & 15, stored >> 4], -1).reshape(*stored.shape[:-1], -1)
        length = shape[2] if self._block else shape[1]
        points: NDArray[numpy.uint8] = stored[..., :length].reshape(shape)
        return points


def _packed(points: NDArray[numpy.uint8], bits: int) -> bytes:
    """One a byte, or two, the first in the low half."""
    import numpy

    flat = points.ravel()
    if bits == 8:
        return flat.tobytes()
    pairs = numpy.pad(flat, (0, flat.size % 2)).reshape(-1, 2)
    return (pairs[:, 0] | pairs[:, 1] << 4).tobytes()
