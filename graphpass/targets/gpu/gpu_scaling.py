"""Scaling of activations, which OpenVINO's GPU plugin does in f16 where a model asks for it and is no decoder to it.

It divides the inputs of MatMul and Convolution by a factor, and moves the factor that mends that down the graph by
passes made for quantized models. Rules, of openvino: ``execution_config.cpp`` (2026.4.1 leaves alone what has one cache
that is appended to as optimum exports it; sources of other dates do so on some GPUs alone),
``activations_scaling.cpp``, and ``multiply_partial.cpp``, which asks a split for its only output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.dialects.openvino.runtime_options import ACTIVATIONS_SCALE, runtime_options
from graphpass.targets.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphpass.ir.graph import Graph, Node
    from graphpass.ir.model import Model

__all__ = ["scaled_products", "scales_activations"]

_PARTIAL = "src/common/low_precision_transformations/src/multiply_partial.cpp"

_SPLITS = frozenset({"Split", "VariadicSplit"})

#: Behind whose results a factor stands.
_SCALED = frozenset({"MatMul", "Convolution"})

#: Past what it is moved, on the way to a split.
_PASSED = frozenset({"Convert", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})


def scaled_products(model: Model) -> tuple[Finding, ...]:
    """A finding for each product of two parts of one scaled tensor, on which the plugin fails."""
    if not scales_activations(model) or _is_decoder(model.graph):
        return ()
    reason = (
        "it multiplies two parts of one tensor, on which scaling of activations fails. The model asks for that "
        "(ACTIVATIONS_SCALE_FACTOR), and 2026.4.1 does it where no cache is only read, ordered by beams and appended "
        "to; run lower-variadic-split, or make-stateful on a stateless model"
    )
    return tuple(
        Finding("model", str(model.path), "refused", node=product.name, reason=reason, source=_PARTIAL)
        for product in _products(model.graph)
    )


def scales_activations(model: Model) -> bool:
    """Whether ``model``, an OpenVINO IR, asks plugins that compute in f16 to scale its activations."""
    return float(runtime_options(model).get(ACTIVATIONS_SCALE, 0)) > 0


def _is_decoder(graph: Graph) -> bool:
    """Whether a state is written by ``ReadValue -> Gather(., input) -> Concat``; Convert may be there, Gather not."""
    for write in graph.of_op("Assign"):
        concat = _behind_converts(graph, write)
        if concat.op != "Concat" or len(concat.inputs) != 2:
            continue
        past = _behind_converts(graph, concat)
        if past.op == "Gather" and past.inputs[1] is not None and graph.producer(past.inputs[1]).op == "Parameter":
            past = _behind_converts(graph, past)
        if past.op == "ReadValue":
            return True
    return False


def _products(graph: Graph) -> Iterator[Node]:
    for product in graph.of_op("Multiply"):
        parts = [graph.producer(value) for value in product.inputs if value is not None]
        if len(parts) == 2 and parts[0] is parts[1] and parts[0].op in _SPLITS:
            source = _first(graph, parts[0])
            while source.op in _PASSED:
                source = _first(graph, source)
            if source.op in _SCALED:
                yield product


def _behind_converts(graph: Graph, node: Node) -> Node:
    source = _first(graph, node)
    return _first(graph, source) if source.op == "Convert" else source


def _first(graph: Graph, node: Node) -> Node:
    value = node.inputs[0]
    assert value is not None
    return graph.producer(value)
