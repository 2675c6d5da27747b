"""Symbolic definitions of com.microsoft's MoE and QMoE; source: docs/ContribOperators.md of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from graphpass.analysis.equations.quantized_blocks import ROUNDING_BITS
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Element, Elements, Rule, Steps, UnknownError
from graphpass.analysis.symbolic.expressions import ONE, TRUE, ZERO, Expr, number
from graphpass.analysis.symbolic.places import index_along
from graphpass.dialects.attributes import native_attributes
from graphpass.ir.graph import Node, Value
from graphpass.verify.structure.activations import gelu, swish
from graphpass.verify.structure.block_weights import BlockWeight, permit_rounding
from graphpass.verify.structure.definitions import Definitions
from graphpass.verify.structure.tensors import closed, definitions_of

_INPUT, _ROUTER = 0, 1

#: Inputs of the three products of MoE: weight and bias.
_PLAIN = ((2, 3), (4, 5), (6, 7))

#: Inputs of the three products of QMoE: weight in bytes, scales, bias and zero points.
_QUANTIZED = ((2, 3, 4, 11), (5, 6, 7, 12), (8, 9, 10, 13))

#: Further inputs of QMoE: routing weights, and scales of some devices.
_FURTHER = range(14, 21)


@dataclass(frozen=True, slots=True)
class _Product:
    """A product with a weight ``[experts, rows, inputs]``.

    Attributes:
        rows: Number of rows.
        inputs: Number of inputs.
        element: Returns an element of the weight for expert, row and input.
        bias: The bias ``[experts, rows]``; ``None`` without one.
        rounds: Whether kernels round activations to 8 bits.
    """

    rows: Expr
    inputs: Expr
    element: Callable[[Expr, Expr, Expr], Steps]
    bias: Value | None
    rounds: bool = False


def _products(element: Element) -> list[_Product | None]:
    """Return the three products of MoE or QMoE; ``None`` for an omitted third product."""
    if element.node.op == "QMoE":
        return [_quantized_product(element, number, *ports) for number, ports in enumerate(_QUANTIZED)]
    return [_plain_product(element, *ports) for ports in _PLAIN]


def _plain_product(element: Element, port: int, bias: int) -> _Product | None:
    weight = element.node.input(port)
    if weight is None:
        return None
    _, rows, inputs = element.shape(port)

    def read(expert: Expr, row: Expr, place: Expr) -> Steps:
        return (yield weight, (expert, row, place))

    return _Product(rows, inputs, read, element.node.input(bias))


def _quantized_product(element: Element, place: int, port: int, scales: int, bias: int, zeros: int) -> _Product | None:
    """Return a product of QMoE.

    Raises:
        UnknownError: The shape of the weight is unknown.
    """
    node, attributes = element.node, native_attributes(element.node)
    stored = node.input(port)
    if stored is None:
        return None
    sizes = tuple(size for size in stored.shape or () if isinstance(size, int))
    if len(sizes) != 3:
        raise UnknownError(f"the shape of {stored.name} is unknown")
    bits = int(attributes.get(f"fc{place + 1}_expert_weight_bits", attributes.get("expert_weight_bits", 4)))
    inputs = sizes[2] * 8 // bits
    block = int(attributes.get("block_size", 0)) or inputs
    weight = BlockWeight(stored, node.source(scales), node.input(zeros), bits, sizes[:2], inputs, block)

    def read(expert: Expr, row: Expr, place: Expr) -> Steps:
        return (yield from weight.at(element, (expert, row), place))

    return _Product(number(sizes[1]), number(inputs), read, node.input(bias), rounds=bits == ROUNDING_BITS)


@dataclass(frozen=True, slots=True)
class _Token:
    """The computation of one expert for one token.

    Attributes:
        element: The element of the result.
        attributes: Attributes of MoE or QMoE.
        products: The three products.
        expert: Index variable of the expert.
    """

    element: Element
    attributes: dict[str, Any]
    products: list[_Product | None]
    expert: Expr

    def product(self, product: _Product, row: Expr, read: Callable[[Expr], Steps]) -> Steps:
        """Return an element of the expert's product with a weight, plus bias.

        Args:
            product: The product.
            row: The row of the weight.
            read: Returns an element of the product's operand.

        Raises:
            UnknownError: As `permit_rounding`.
        """
        own, bound = ex.index("row", product.rows), ex.index("input", product.inputs)
        weight = yield from product.element(self.expert, own, bound)
        if product.rounds:
            permit_rounding(self.element, weight)
        result = definitions_of(self.element).sum(ex.multiply((yield from read(bound)), weight), bound)
        if product.bias is not None:
            result = ex.add(result, (yield product.bias, (self.expert, own)))
        return ex.substitute(result, {own: row})

    def inner(self, row: Expr) -> Steps:
        """Return an element of the activation after the first and the third product.

        Raises:
            UnknownError: The activation has no definition, or lacks its third weight.
        """
        node, index = self.element.node, self.element.index
        kind, fusion = self.attributes.get("activation_type", "relu"), self.attributes.get("swiglu_fusion", 0)

        def token(channel: Expr) -> Steps:
            return (yield node.source(_INPUT), (*index[:-1], channel))

        first, second, third_product = self.products
        if first is None or second is None:
            raise UnknownError("the weights of the first two products are omitted")
        if kind == "swiglu" and fusion:
            rows = second.inputs
            twice = ex.multiply(number(2), row)
            places = (twice, ex.add(twice, ONE)) if fusion == 1 else (row, ex.add(rows, row))
            gate, linear = (
                (yield from self.product(first, places[0], token)),
                (yield from self.product(first, places[1], token)),
            )
            return self._swiglu(gate, linear)
        gate = yield from self.product(first, row, token)
        third = None if third_product is None else (yield from self.product(third_product, row, token))
        if kind == "swiglu":
            if third is None:
                raise UnknownError("SwiGLU without fusion requires a third weight")
            return self._swiglu(gate, third)
        known = {
            "relu": lambda: ex.maximum(gate, ZERO),
            "silu": lambda: swish(gate),
            "gelu": lambda: gelu(gate, approximate=True),
            "identity": lambda: gate,
        }
        if kind not in known:
            raise UnknownError(f"no definition for activation {kind}")
        return known[kind]() if third is None else ex.multiply(known[kind](), third)

    def _swiglu(self, gate: Expr, linear: Expr) -> Expr:
        limit = self.attributes.get("swiglu_limit")
        if limit is not None:
            high, low = number(float(limit)), number(-float(limit))
            gate, linear = ex.minimum(gate, high), ex.minimum(ex.maximum(linear, low), high)
        alpha, beta = (number(float(self.attributes.get(f"activation_{name}", usual))) for name, usual in _USUAL)
        return ex.multiply(swish(gate, alpha), ex.add(linear, beta))

    def gate(self, definitions: Definitions) -> Steps:
        """Return the token's weight for the expert; 0 unless it is among the ``k`` largest."""
        count, router = self.expert.args[1], self.element.shape(_ROUTER)
        leading = self.element.index[:-1]
        if len(router) == 2 and len(leading) == 2:
            leading = (ex.add(ex.multiply(leading[0], self.element.own_shape[1]), leading[1]),)
        along = ex.index("score", count)
        share = definitions.softmax(TRUE, (yield self.element.node.source(_ROUTER), (*leading, along)), along)
        result = definitions.top(share, along, (True, True, True, None))
        rank = index_along("rank", number(int(self.attributes.get("k", 1))))
        place = ex.read(result.args[0], (*result.args[1:], rank), "int")
        value = ex.substitute(share, {along: place})
        gate = definitions.sum(ex.choose(ex.equal(place, self.expert), value, ZERO), rank)
        is_normalized = bool(self.attributes.get("normalize_routing_weights", 0))
        return ex.divide(gate, definitions.sum(value, rank)) if is_normalized else gate


@closed
def _mixture(element: Element) -> Steps:
    """Return an element of MoE or QMoE.

    Raises:
        UnknownError: An attribute or input has no definition.
    """
    node, attributes = element.node, native_attributes(element.node)
    if attributes.get("use_sparse_mixer", 0):
        raise UnknownError("use_sparse_mixer = 1 has no definition")
    if node.op == "QMoE":
        _check_quantized(node, attributes)
    products = _products(element)
    second = products[1]
    if second is None:
        raise UnknownError("the weight of the second product is omitted")
    definitions, expert = definitions_of(element), ex.index("expert", element.shape(_ROUTER)[-1])
    token = _Token(element, attributes, products, expert)
    result = yield from token.product(second, element.index[-1], token.inner)
    gate = yield from token.gate(definitions)
    return definitions.sum(ex.multiply(gate, result), expert)


def _check_quantized(node: Node, attributes: dict[str, Any]) -> None:
    """Check that QMoE has a definition.

    Raises:
        UnknownError: An attribute or input has none.
    """
    if attributes.get("quant_type", "int") != "int" or attributes.get("weights_prepacked", 0) == 1:
        raise UnknownError("its weights are not integers, or packed for one device")
    if not attributes.get("normalize_routing_weights", 0):
        # ONNX Runtime's CPU kernel (1.31) normalizes routing weights in any case.
        raise UnknownError("runtimes differ if normalize_routing_weights is 0")
    if any(node.input(port) is not None for port in _FURTHER):
        raise UnknownError("inputs after the zero points have no definition")


#: Default parameters of SwiGLU.
_USUAL = (("alpha", 1.0), ("beta", 0.0))

RULES: dict[str, Rule] = {"MoE": _mixture, "QMoE": _mixture}

#: The result has the sizes of the input.
SIZES: dict[str, Callable[[Elements, Node, int], Expr | None]] = {
    op: lambda elements, node, axis: elements.shape(node.source())[axis] for op in RULES
}
