"""Symbolic definition of com.microsoft's MoE; source: docs/ContribOperators.md of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Element, Elements, Rule, Steps, UnknownError
from graphpass.analysis.symbolic.expressions import ONE, TRUE, ZERO, Expr, number
from graphpass.dialects.attributes import native_attributes
from graphpass.ir.graph import Node
from graphpass.verify.structure.activations import gelu, swish
from graphpass.verify.structure.definitions import Definitions
from graphpass.verify.structure.tensors import closed, definitions_of

_INPUT, _ROUTER = 0, 1

#: Inputs with the weights of the three products, each followed by its bias.
_FIRST, _SECOND, _THIRD = 2, 4, 6


@dataclass(frozen=True, slots=True)
class _Token:
    """The computation of one expert for one token.

    Attributes:
        element: The element of the result.
        attributes: Attributes of MoE.
        expert: Index variable of the expert.
    """

    element: Element
    attributes: dict[str, Any]
    expert: Expr

    def product(self, port: int, row: Expr, read: Callable[[Expr], Steps]) -> Steps:
        """Return an element of the expert's product with a weight, plus bias.

        Args:
            port: Input with the weight, ``[experts, rows, inputs]``.
            row: The row of the weight.
            read: Returns an element of the product's operand.
        """
        node, definitions = self.element.node, definitions_of(self.element)
        _, rows, inputs = self.element.shape(port)
        own, bound = ex.index("row", rows), ex.index("input", inputs)
        weight = yield node.source(port), (self.expert, own, bound)
        result = definitions.sum(ex.multiply((yield from read(bound)), weight), bound)
        if node.input(port + 1) is not None:
            result = ex.add(result, (yield node.source(port + 1), (self.expert, own)))
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

        if kind == "swiglu" and fusion:
            rows = self.element.shape(_SECOND)[2]
            twice = ex.multiply(number(2), row)
            places = (twice, ex.add(twice, ONE)) if fusion == 1 else (row, ex.add(rows, row))
            gate, linear = (
                (yield from self.product(_FIRST, places[0], token)),
                (yield from self.product(_FIRST, places[1], token)),
            )
            return self._swiglu(gate, linear)
        gate = yield from self.product(_FIRST, row, token)
        third = None if node.input(_THIRD) is None else (yield from self.product(_THIRD, row, token))
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
        rank = ex.index("rank", number(int(self.attributes.get("k", 1))))
        place = ex.read(result.args[0], (*result.args[1:], rank), "int")
        value = ex.substitute(share, {along: place})
        gate = definitions.sum(ex.choose(ex.equal(place, self.expert), value, ZERO), rank)
        is_normalized = bool(self.attributes.get("normalize_routing_weights", 0))
        return ex.divide(gate, definitions.sum(value, rank)) if is_normalized else gate


@closed
def _mixture(element: Element) -> Steps:
    attributes, sizes = native_attributes(element.node), element.shape(_FIRST)
    if attributes.get("use_sparse_mixer", 0):
        raise UnknownError("use_sparse_mixer = 1 has no definition")
    definitions, expert = definitions_of(element), ex.index("expert", sizes[0])
    token = _Token(element, attributes, expert)
    result = yield from token.product(_SECOND, element.index[-1], token.inner)
    gate = yield from token.gate(definitions)
    return definitions.sum(ex.multiply(gate, result), expert)


#: Default parameters of SwiGLU.
_USUAL = (("alpha", 1.0), ("beta", 0.0))

RULES: dict[str, Rule] = {"MoE": _mixture}

#: The result has the sizes of the input.
SIZES: dict[str, Callable[[Elements, Node, int], Expr | None]] = {
    "MoE": lambda elements, node, axis: elements.shape(node.source())[axis]
}
