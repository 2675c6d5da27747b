"""Identification of the activation between an expert's products, by evaluating it at sample points."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy

from graphpass.analysis.symbolic.arrays import computed
from graphpass.analysis.symbolic.folding import fold_scalar
from graphpass.analysis.symbolic.rounding import Array
from graphpass.dialects.signature import signature
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import MissError

#: Tolerance for constants in f32; GELU by erf differs from GELU by tanh by 5e-4.
_TOLERANCE = 1e-6

#: Larger limits of SwiGLU count as unlimited.
_UNBOUNDED = 1e6

_GATES = numpy.concatenate([numpy.linspace(-30, 30, 121), [0.01, -0.01, 200.0, -200.0, 1e4]])
_UPS = numpy.concatenate([numpy.linspace(25, -35, 121), [-0.02, 0.3, -300.0, 170.0, -1e4]])


@dataclass(frozen=True, slots=True)
class Activation:
    """An activation between an expert's products, with the parameters of ONNX Runtime's MoE.

    Attributes:
        kind: ``relu``, ``gelu``, ``silu`` or ``identity`` of one product; ``swiglu`` of two, gate ``g`` and linear part
            ``l``: ``min(g, limit) * sigmoid(alpha * min(g, limit)) * (clamp(l, -limit, limit) + beta)``.
        alpha: Factor inside the sigmoid.
        beta: Addend of the linear part.
        limit: Upper bound of the gate and bound of the linear part; ``None`` for unlimited.
    """

    kind: str
    alpha: float = 1.0
    beta: float = 0.0
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class Function:
    """An elementwise function of an expert's products.

    Attributes:
        end: The result.
        nodes: The elementwise operators, in execution order.
        leaves: For each product, the values that contain its result.
    """

    end: Value
    nodes: tuple[Node, ...]
    leaves: tuple[frozenset[Value], ...]

    def form(self, graph: Graph) -> tuple[object, ...]:
        """Return a key of operators, attributes and constants, equal for experts with the same function."""
        places = {value: place for place, leaf in enumerate(self.leaves) for value in leaf}
        form = []
        for node in self.nodes:
            reads = (None if value is None else places.get(value, fold_scalar(graph, value)) for value in node.inputs)
            form.append((signature(node), *reads))
            places[node.outputs[0]] = len(self.leaves) + len(form) - 1
        return *form, places[self.end]


def name_activation(graph: Graph, function: Function) -> tuple[Activation, tuple[int, ...]]:
    """Return the activation, and the indices of gate and linear part among the products.

    Args:
        graph: The graph.
        function: Function between the products of an expert; only functions of one or two products have a name.

    Raises:
        MissError: MoE does not have an activation that equals the function.
    """
    end, leaves = function.end, function.leaves

    def compute(*arrays: Array) -> Array:
        results = {value: array for values, array in zip(leaves, arrays, strict=True) for value in values}
        for node in function.nodes:
            results[node.outputs[0]] = _computed(graph, node, results)
        return results[end]

    if len(leaves) == 1:
        made = compute(_GATES)
        for kind, plain in _PLAIN.items():
            if _agrees(made, plain(_GATES)):
                return Activation(kind), (0,)
    elif len(leaves) == 2:
        for order_of in ((0, 1), (1, 0)):

            def gated(gate: Array, up: Array, places: tuple[int, int] = order_of) -> Array:
                return compute(*((gate, up) if places == (0, 1) else (up, gate)))

            activation = _swiglu(gated)
            if activation is not None:
                return activation, order_of
    words = "a function of one product" if len(leaves) == 1 else f"a function of {len(leaves)} products"
    raise MissError(graph.producer(end), f"{words} between the products of an expert is not an activation of MoE")


def _computed(graph: Graph, node: Node, results: Mapping[Value, Array]) -> Array:
    inputs: dict[Value, Array] = {}
    for value in node.inputs:
        if value is not None:
            number = None if value in results else fold_scalar(graph, value)
            inputs[value] = numpy.array(number, float) if number is not None else results[value]
    # In f64 for any type of the graph, because parameters are differences of close numbers.
    wide = replace(node, outputs=(replace(node.outputs[0], element_type="f64"),))
    made = computed(graph, wide, 0, inputs, _GATES.size)
    if made is None or (node.op == "Convert" and node.source().element_type != node.outputs[0].element_type):
        raise MissError(node, f"{node.op} cannot be evaluated")
    return made


def _swiglu(function: Callable[[Array, Array], Array]) -> Activation | None:
    """Return SwiGLU with parameters solved at a few points, if others agree."""
    with numpy.errstate(all="ignore"):
        ones = numpy.ones(1)
        zero, first = function(ones, 0 * ones)[0], function(ones, ones)[0]
        slope = first - zero
        if not 0 < slope < 1:
            return None
        alpha, beta = float(numpy.log(slope / (1 - slope))), float(zero / slope)
        limit = float(function(ones, 10 * _UNBOUNDED * ones)[0] / slope - beta)
    if not limit > 1:
        return None
    # Constants of the graph and attributes of the operator are f32.
    alpha, beta, limit = (float(numpy.float32(number)) for number in (alpha, beta, limit))
    activation = Activation("swiglu", alpha, beta, None if limit > _UNBOUNDED else limit)
    return activation if _agrees(function(_GATES, _UPS), _computed_swiglu(activation, _GATES, _UPS)) else None


def _computed_swiglu(kind: Activation, gate: Array, up: Array) -> Array:
    bound = math.inf if kind.limit is None else kind.limit
    gate, up = numpy.minimum(gate, bound), numpy.clip(up, -bound, bound)
    made: Array = gate * _sigmoid(kind.alpha * gate) * (up + kind.beta)
    return made


def _sigmoid(array: Array) -> Array:
    made: Array = 1 / (1 + numpy.exp(-array))
    return made


def _gelu(array: Array) -> Array:
    made: Array = 0.5 * array * (1 + numpy.tanh(math.sqrt(2 / math.pi) * (array + 0.044715 * array**3)))
    return made


#: Activations of one product; source: ``onnxruntime/contrib_ops/cpu/moe/moe_utils.cc``.
_PLAIN: dict[str, Callable[[Array], Array]] = {
    "relu": lambda array: numpy.maximum(array, 0),
    "silu": lambda array: array * _sigmoid(array),
    "gelu": _gelu,
    "identity": lambda array: array,
}


def _agrees(made: Array, wanted: Array) -> bool:
    return made.shape == wanted.shape and bool(numpy.allclose(made, wanted, rtol=_TOLERANCE, atol=_TOLERANCE))
