"""The pass `lower-mixture-of-experts`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.rewrite import NodeWriter, attributes, input_at, node_name, rewrite_nodes
from graphpass.dialects.onnx.tensors import element_code
from graphpass.engine.passes import Changed, Pass, PassResult, Unchanged
from graphpass.errors import UnsupportedError
from graphpass.ir.types import Dialect

if TYPE_CHECKING:
    import onnx

    from graphpass.ir.graph import Node

__all__ = ["LowerMixtureOfExperts"]

_INPUT, _ROUTER, _FC1, _FC1_BIAS, _FC2, _FC2_BIAS, _FC3, _FC3_BIAS = range(8)


@dataclass(frozen=True)
class LowerMixtureOfExperts(Pass[OnnxModel]):
    """Write com.microsoft MoE as batched products over all experts, weighted by the router.

    OpenVINO's frontend has no rule for the operator (2026.4.1). Every expert computes every token, and those that the
    router did not choose weigh 0: plain operators cannot leave them out.

    Shapes:
        input ``[batch, length, hidden]`` or ``[tokens, hidden]``, router ``[tokens, experts]``, weights ``[experts,
        inner, hidden]`` and ``[experts, hidden, inner]``; fused SwiGLU has ``2 * inner``.

    Before:
        MoE(input, router_probs, fc1_weights, fc1_bias, fc2_weights, fc2_bias)
    After:
        TopK(Softmax(router_probs)) -> ScatterElements -> gates; ReduceSum over experts of MatMul(activation(MatMul(
        input, fc1_weights) + fc1_bias), fc2_weights) + fc2_bias, times gates

    Raises:
        UnsupportedError: GP340 an opset before 13; GP341 the sparse mixer, an activation that is not known, or sizes
            that are not.
    """

    name: ClassVar[str] = "lower-mixture-of-experts"
    dialect: ClassVar[Dialect | None] = "onnx"

    def run(self, model: OnnxModel) -> PassResult:
        """See `Pass.run`."""
        known = {node.outputs[0].name: node for node in model.graph.of_op("MoE")}
        count = rewrite_nodes(
            model,
            lambda native: native.op_type == "MoE",
            lambda native, writer: _Experts(known.get(native.output[0]), native, writer).write(),
        )
        return Changed(model, {"mixtures lowered": count}) if count else Unchanged()


class _Experts:
    """One MoE and what stands for it."""

    def __init__(self, node: Node | None, native: onnx.NodeProto, writer: NodeWriter) -> None:
        self._native, self._writer = native, writer
        self._given: dict[str, Any] = attributes(native)
        if node is None:
            raise self._refusal("it is inside a body or a function")
        if self._given.get("use_sparse_mixer", 0):
            raise self._refusal("it has use_sparse_mixer = 1")
        weight = node.inputs[_FC1]
        shape = weight.shape if weight is not None else None
        if weight is None or shape is None or not all(isinstance(size, int) for size in shape):
            raise self._refusal("the shape of its weights is not known")
        self._experts, _, self._hidden = (size for size in shape if isinstance(size, int))
        self._type = element_code(weight.element_type)

    def _refusal(self, reason: str) -> UnsupportedError:
        native = self._native
        return UnsupportedError("GP341", f"{native.op_type} {node_name(native)} cannot be lowered: {reason}")

    def write(self) -> None:
        """Write the operator's output."""
        writer, native = self._writer, self._native
        tokens = writer.op("Reshape", native.input[_INPUT], writer.integers([1, -1, self._hidden]))
        # The CPU plugin (2026.4.1) fails on a product that copies tokens for each expert by broadcasting.
        tokens = writer.op("Expand", tokens, writer.integers([self._experts, 1, 1]))
        inner = self._activated(tokens)
        results = self._product(inner, _FC2, _FC2_BIAS)
        weighted = writer.op("Mul", results, self._gates())
        total = writer.op("ReduceSum", weighted, writer.integers([0]), keepdims=0)
        writer.op("Reshape", total, writer.op("Shape", native.input[_INPUT]), output=native.output[0])

    def _product(self, value: str, weight: int, bias: int) -> str:
        """``[experts, tokens, outputs]``."""
        writer, native = self._writer, self._native
        turned = writer.op("Transpose", native.input[weight], perm=[0, 2, 1])
        product = writer.op("MatMul", value, turned)
        if not input_at(native, bias):
            return product
        return writer.op("Add", product, writer.op("Unsqueeze", native.input[bias], writer.integers([1])))

    def _gates(self) -> str:
        """How much each expert counts for each token, ``[experts, tokens, 1]``."""
        writer, router = self._writer, self._native.input[_ROUTER]
        names = [f"{node_name(self._native)}/top_{part}" for part in ("gates", "experts")]
        probabilities = writer.op("Softmax", router, axis=-1)
        writer.nodes.append(_top(probabilities, writer.integers([self._given.get("k", 1)]), names))
        chosen = names[0]
        if self._given.get("normalize_routing_weights", 0):
            chosen = writer.op("Div", chosen, writer.op("ReduceSum", chosen, writer.integers([1]), keepdims=1))
        none = writer.op("Expand", writer.number(0.0, self._type), writer.op("Shape", router))
        gates = writer.op("ScatterElements", none, names[1], chosen, axis=1)
        return writer.op("Unsqueeze", writer.op("Transpose", gates, perm=[1, 0]), writer.integers([2]))

    def _activated(self, tokens: str) -> str:
        writer, kind = self._writer, self._given.get("activation_type", "relu")
        first = self._product(tokens, _FC1, _FC1_BIAS)
        third = self._product(tokens, _FC3, _FC3_BIAS) if input_at(self._native, _FC3) else ""
        if kind == "swiglu":
            return self._swiglu(first, third)
        if kind == "relu":
            result = writer.op("Relu", first)
        elif kind == "silu":
            result = writer.op("Mul", first, writer.op("Sigmoid", first))
        elif kind == "gelu":
            result = self._gelu(first)
        elif kind == "identity":
            result = first
        else:
            raise self._refusal(f"its activation is {kind}")
        return writer.op("Mul", result, third) if third else result

    def _gelu(self, value: str) -> str:
        """The operator's is the approximation by a hyperbolic tangent."""
        writer = self._writer
        half, one, factor, root = (writer.number(number, self._type) for number in (0.5, 1.0, 0.044715, _ROOT))
        cube = writer.op("Mul", writer.op("Mul", value, value), value)
        bent = writer.op("Mul", writer.op("Add", value, writer.op("Mul", cube, factor)), root)
        return writer.op("Mul", writer.op("Mul", value, half), writer.op("Add", writer.op("Tanh", bent), one))

    def _swiglu(self, first: str, third: str) -> str:
        writer, given = self._writer, self._given
        gate, linear = first, third
        fusion = given.get("swiglu_fusion", 0)
        if fusion == 1:
            pairs = writer.op("Reshape", first, writer.integers([0, 0, -1, 2]))
            parts = (writer.slice(pairs, place, place + 1, 3) for place in (0, 1))
            gate, linear = (writer.op("Squeeze", part, writer.integers([3])) for part in parts)
        elif fusion == 2:
            halves = writer.op("Reshape", first, writer.integers([0, 0, 2, -1]))
            parts = (writer.slice(halves, place, place + 1, 2) for place in (0, 1))
            gate, linear = (writer.op("Squeeze", part, writer.integers([2])) for part in parts)
        elif not third:
            raise self._refusal("it is SwiGLU without a third weight")
        if "swiglu_limit" in given:
            high, low = (writer.number(sign * given["swiglu_limit"], self._type) for sign in (1, -1))
            gate, linear = writer.op("Min", gate, high), writer.op("Clip", linear, low, high)
        alpha, beta = (writer.number(given.get(f"activation_{name}", usual), self._type) for name, usual in _USUAL)
        turned = writer.op("Mul", gate, writer.op("Sigmoid", writer.op("Mul", gate, alpha)))
        return writer.op("Mul", turned, writer.op("Add", linear, beta))


_ROOT = (2 / math.pi) ** 0.5

#: Parameters of SwiGLU where the attributes are left out.
_USUAL = (("alpha", 1.0), ("beta", 0.0))


def _top(probabilities: str, count: str, names: list[str]) -> onnx.NodeProto:
    from onnx import helper

    return helper.make_node("TopK", [probabilities, count], names, name=names[0], axis=-1)
