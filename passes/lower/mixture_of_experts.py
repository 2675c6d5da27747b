"""Lower MoE."""

from __future__ import annotations

import math
from dataclasses import dataclass

from graphpass.ir.writer import Handle
from graphpass.passes.lower.lowered_operator import LoweredOperator

_INPUT, _ROUTER = 0, 1

#: Ports of weight and bias of the three products.
_PRODUCTS = ((2, 3), (4, 5), (6, 7))

Product = tuple["Handle", "Handle | None"]
"""Weight ``[experts, outputs, inputs]`` and bias of a product."""


def lower_mixture_of_experts(operator: LoweredOperator) -> None:
    """Lower com.microsoft MoE to batched products over all experts, weighted by the router.

    OpenVINO's frontend has no rule for the operator (2026.4.1). Every expert computes every token, because standard
    operators cannot skip experts; experts that the router does not select have weight 0.

    Shapes:
        input ``[batch, length, hidden]`` or ``[tokens, hidden]``, router ``[tokens, experts]``, weights ``[experts,
        inner, hidden]`` and ``[experts, hidden, inner]``; fused SwiGLU has ``2 * inner``.

    Before:
        MoE(input, router_probs, fc1_weights, fc1_bias, fc2_weights, fc2_bias)
    After:
        TopK(Softmax(router_probs)) -> ScatterElements -> gates; ReduceSum over experts of MatMul(activation(MatMul(
        input, fc1_weights) + fc1_bias), fc2_weights) + fc2_bias, times gates

    Raises:
        UnsupportedError: GP341, the sparse mixer, an unsupported activation or unknown sizes.
    """
    weight = operator.value(_PRODUCTS[0][0])
    sizes = [size for size in weight.shape or () if isinstance(size, int)] if weight is not None else []
    if weight is None or len(sizes) != 3:
        raise operator.refusal("the shape of its weights is unknown")
    products = [
        None if operator.read(port) is None else (operator.read(port), operator.read(bias)) for port, bias in _PRODUCTS
    ]
    Experts(operator, products, sizes[0], sizes[2], weight.element_type).write_all()


@dataclass(frozen=True)
class Experts:
    """The experts of an MoE or QMoE.

    Attributes:
        operator: The operator.
        products: The three products; ``None`` for an omitted third product.
        count: Number of experts.
        hidden: Size of a token.
        type: Element type of tokens.
    """

    operator: LoweredOperator
    products: list[Product | None]
    count: int
    hidden: int
    type: str

    def write_all(self) -> None:
        """Replace the operator's output."""
        operator, write = self.operator, self.operator.write
        if operator.attribute("use_sparse_mixer", 0):
            raise operator.refusal("it has use_sparse_mixer = 1")
        tokens = write.op("Reshape", operator.read(_INPUT), [1, -1, self.hidden])
        # The CPU plugin (2026.4.1) fails on a MatMul that broadcasts tokens to all experts.
        tokens = write.op("Broadcast", tokens, [self.count, 1, 1])
        weighted = write.op("Multiply", self._product(self._activated(tokens), 1), self._gates())
        total = write.op("ReduceSum", weighted, axes=[0], keep=False)
        operator.replace(0, write.op("Reshape", total, write.op("ShapeOf", operator.read(_INPUT))))

    def _product(self, value: Handle, number: int) -> Handle:
        """Return the product ``[experts, tokens, outputs]``; ``None`` if it is omitted."""
        product, write = self.products[number], self.operator.write
        if product is None:
            return None
        weight, bias = product
        result = write.op("MatMul", value, write.op("Transpose", weight, order=[0, 2, 1]))
        return result if bias is None else write.op("Add", result, write.op("Unsqueeze", bias, axes=[1]))

    def _gates(self) -> Handle:
        """Return routing weights, ``[experts, tokens, 1]``."""
        operator, write, router = self.operator, self.operator.write, self.operator.read(_ROUTER)
        probabilities = write.op("Softmax", router, axis=-1)
        top, experts = write.outputs("TopK", probabilities, [operator.attribute("k", 1)], count=2, axis=-1)
        if operator.attribute("normalize_routing_weights", 0):
            top = write.op("Divide", top, write.op("ReduceSum", top, axes=[1], keep=True))
        none = write.op("Broadcast", self._number(0.0), write.op("ShapeOf", router))
        gates = write.op("ScatterElementsUpdate", none, experts, top, axis=1)
        return write.op("Unsqueeze", write.op("Transpose", gates, order=[1, 0]), axes=[2])

    def _activated(self, tokens: Handle) -> Handle:
        write, kind = self.operator.write, self.operator.attribute("activation_type", "relu")
        first, third = (self._product(tokens, number) for number in (0, 2))
        if kind == "swiglu":
            return self._swiglu(first, third)
        if kind == "relu":
            result = write.op("Relu", first)
        elif kind == "silu":
            result = write.op("Multiply", first, write.op("Sigmoid", first))
        elif kind == "gelu":
            result = self._gelu(first)
        elif kind == "identity":
            result = first
        else:
            raise self.operator.refusal(f"its activation is {kind}")
        return result if third is None else write.op("Multiply", result, third)

    def _gelu(self, value: Handle) -> Handle:
        """Return GELU in the tanh approximation, which the operator computes."""
        write = self.operator.write
        half, one, factor, root = (self._number(number) for number in (0.5, 1.0, 0.044715, math.sqrt(2 / math.pi)))
        cube = write.op("Multiply", write.op("Multiply", value, value), value)
        inner = write.op("Multiply", write.op("Add", value, write.op("Multiply", cube, factor)), root)
        return write.op("Multiply", write.op("Multiply", value, half), write.op("Add", write.op("Tanh", inner), one))

    def _swiglu(self, first: Handle, third: Handle) -> Handle:
        operator, write = self.operator, self.operator.write
        gate, linear = first, third
        fusion = operator.attribute("swiglu_fusion", 0)
        if fusion:
            # Columns of gate and linear part are interleaved (1) or concatenated (2).
            shape, axis = ([0, 0, -1, 2], 3) if fusion == 1 else ([0, 0, 2, -1], 2)
            both = write.op("Reshape", first, shape)
            parts = [write.slice(both, index, index + 1, axis) for index in (0, 1)]
            gate, linear = (write.op("Squeeze", part, axes=[axis]) for part in parts)
        elif third is None:
            raise operator.refusal("its SwiGLU has no third weight")
        limit = operator.attribute("swiglu_limit")
        if limit is not None:
            high, low = self._number(limit), self._number(-limit)
            gate, linear = write.op("Minimum", gate, high), write.op("Clip", linear, low, high)
        alpha, beta = (self._number(operator.attribute(f"activation_{name}", usual)) for name, usual in _USUAL)
        activated = write.op("Multiply", gate, write.op("Sigmoid", write.op("Multiply", gate, alpha)))
        return write.op("Multiply", activated, write.op("Add", linear, beta))

    def _number(self, value: float) -> Handle:
        return self.operator.write.number(value, self.type)


#: Defaults of SwiGLU's parameters.
_USUAL = (("alpha", 1.0), ("beta", 0.0))
