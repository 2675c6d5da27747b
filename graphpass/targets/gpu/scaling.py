"""Predict scaling of activations, done in f16 by OpenVINO's GPU plugin.

It divides the inputs of MatMul and Convolution by a factor, and moves the factor that mends that downstream by passes
made for quantized models. Sources, of openvino: ``execution_config.cpp`` (2026.4.1 leaves alone a model with one cache
that is appended to as optimum exports it; sources of other dates do so on some GPUs alone),
``activations_scaling.cpp``, and ``multiply_partial.cpp``, which asks a split for its only output.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphpass.analysis.pattern import Pattern, op, var
from graphpass.dialects.openvino.runtime_options import scales_activations
from graphpass.engine.findings import Finding
from graphpass.ir.graph import Graph, Node
from graphpass.ir.model import Model

_PARTIAL = "src/common/low_precision_transformations/src/multiply_partial.cpp"

#: Operators that a factor follows.
_SCALED = frozenset({"MatMul", "Convolution"})

#: Operators past which it is moved, on the way to a split.
_PASSED = frozenset({"Convert", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})


def _maybe_converted(pattern: Pattern) -> Pattern:
    return pattern | op.Convert(pattern)


_READ = _maybe_converted(op.ReadValue(...))

#: A cache as the plugin knows decoders by it.
_DECODER = op.Assign(
    _maybe_converted(op.Concat(_READ | _maybe_converted(op.Gather(_READ, op.Parameter(), ...)), var())), ...
)


def scaled_products(model: Model) -> Iterator[Finding]:
    """Yield a finding for each product of two parts of a scaled tensor."""
    if not scales_activations(model) or any(True for _ in _DECODER.find(model.graph)):
        return
    reason = (
        "it multiplies two parts of one tensor, on which scaling of activations fails. The model asks for that "
        "(ACTIVATIONS_SCALE_FACTOR), and 2026.4.1 does it where no cache is only read, ordered by beams and appended "
        "to; run lower-variadic-split, or make-stateful on a stateless model"
    )
    for product in _products(model.graph):
        yield Finding.of_model(model, "refused", reason, _PARTIAL, product)


def _products(graph: Graph) -> Iterator[Node]:
    for product in graph.of_op("Multiply"):
        parts = [graph.producer(value) for value in product.inputs if value is not None]
        if len(parts) < 2 or parts[0] is not parts[1] or parts[0].op not in {"Split", "VariadicSplit"}:
            continue
        if graph.producer(graph.look_through(parts[0].source(), _PASSED)).op in _SCALED:
            yield product
