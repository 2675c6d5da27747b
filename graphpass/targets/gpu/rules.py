"""Rules of the GPU plugin, which fuses a growing cache into ``kv_cache``.

| form | chain | features |
| --- | --- | --- |
| beam | ``ReadValue -> Gather(beam_idx) -> Concat`` | a beam table, and a cache in int8 |
| reorder | ``ReadValue -> ScatterElementsUpdate(dst_idx) -> trim -> Concat`` | moves and trims slots |

Sources: ``kv_cache_fusion.cpp`` and ``indirect_kv_cache.cpp`` of OpenVINO. Measured on 2026.4.1: a trim is fused only
as a StridedSlice that begins at 1; later sources fix this.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphpass.analysis.pattern import Pattern, op, var
from graphpass.dialects.openvino.runtime_options import scales_activations
from graphpass.engine.findings import Finding, Verdict
from graphpass.ir.cache import Cache, Inventory
from graphpass.ir.graph import Graph, Node
from graphpass.ir.miss import MissError
from graphpass.ir.model import Model
from graphpass.ir.operators import SLICES
from graphpass.ir.quantizers import why_not_fused
from graphpass.targets.chain import APPENDED
from graphpass.targets.rules import dropped_quantizers, failing_branches, linear_finding

_TRANSFORMATIONS = "src/plugins/intel_gpu/src/plugin/transformations"
_FUSION = f"{_TRANSFORMATIONS}/kv_cache_fusion.cpp"
_INDIRECT = f"{_TRANSFORMATIONS}/indirect_kv_cache.cpp"
_KERNEL = "src/plugins/intel_gpu/src/graph/impls/ocl/gather_nd.cpp"
_SHAPE = "src/core/include/openvino/core/partial_shape.hpp"

_ONE_VERSION = "only in 2026.4.1: later versions do not fuse it and, like all other devices, drop the first position"

_OTHER_MOVES = "expected moves of the ReadValue's positions to indices in an i32 input of the model"


class _RefusalError(MissError):
    """A miss at which an assertion in the plugin's matcher fails."""


def predict(model: Model, inventory: Inventory) -> tuple[Finding, ...]:
    """Predict how the GPU plugin executes a model.

    Args:
        model: A model in OpenVINO IR.
        inventory: The caches of the model.

    Returns:
        Findings on the model as a whole, and on ``kv`` and ``linear`` caches.
    """
    writes = {node.attributes["variable"]: node for node in model.graph.of_op("Assign")}
    return (
        *failing_branches(model, _SHAPE),
        *dropped_quantizers(model),
        *_scaled_products(model),
        *_refused_gathers(model),
        *(_cache(model.graph, cache, writes.get(cache.name)) for cache in inventory.of_kind("kv", "linear")),
    )


def _refused_gathers(model: Model) -> Iterator[Finding]:
    reason = "it gathers booleans, for which the plugin has no kernel: run lower-boolean-gathers"
    for node in model.graph.of_op("GatherND"):
        if node.outputs[0].element_type == "boolean":
            yield Finding.of_model(model, "refused", reason, _KERNEL, node)


def _cache(graph: Graph, cache: Cache, write: Node | None) -> Finding:
    if cache.kind == "linear":
        return linear_finding(cache, _FUSION, is_variable=write is not None)
    if write is None:
        reason = "the past is an input of the model, not a variable: run make-stateful"
        return Finding("cache", cache.name, "not fused", cache.layer, cache.read, reason, _FUSION)
    try:
        form = _form(graph, write)
    except MissError as error:
        verdict: Verdict = "refused" if isinstance(error, _RefusalError) else "not fused"
        return Finding.at(error.miss, "cache", cache.name, verdict, _FUSION, cache.layer)
    return Finding("cache", cache.name, "fused", cache.layer, reason=form, source=_INDIRECT)


def _form(graph: Graph, write: Node) -> str:
    """Return a description of the fused cache.

    Raises:
        MissError: At the first node that prevents the fusion.
        _RefusalError: At the first node on which the plugin fails.
    """
    concat = _before(graph, write)
    if concat.op == "Convert":
        concat = _before(graph, concat)
    if concat.op != "Concat":
        raise MissError(concat, why_not_fused(concat, f"expected a Concat of past and new positions, got {concat.op}"))
    past = _before(graph, concat)
    if past.op in SLICES:
        return _trimmed(graph, past)
    if past.op == "ScatterElementsUpdate":
        if _is_reorder(graph, past):
            reason = "positions are moved but not trimmed after it, on which an assertion of the plugin's matcher fails"
            raise _RefusalError(past, reason)
        raise MissError(past, _OTHER_MOVES)
    inner = graph.producer(graph.look_through(past.outputs[0], {"Convert"}))
    if inner.op == "ReadValue":
        return "has no beam table, so the cache cannot be in int8"
    if inner.op != "Gather":
        raise MissError(inner, f"expected a Gather between the variable and the Concat, got {inner.op}")
    if past.op == "Gather":
        APPENDED.require(graph, concat)
    index = inner.source(1)
    if graph.producer(index).op != "Parameter" or index.element_type != "i32":
        raise MissError(inner, "its indices are not an i32 input of the model")
    return "can have a beam table"


def _trimmed(graph: Graph, trim: Node) -> str:
    if trim.op != "StridedSlice":
        raise MissError(
            trim,
            "2026.4.1 fuses a trim only as a StridedSlice that begins at 1 (a bug; later versions fuse this Slice, "
            "which begins at 0; for 2026.4.1 use trim=begin-one)",
        )
    begin = graph.constant(trim.inputs[1])
    if begin is None or not (begin == 1).all():
        raise MissError(trim, "2026.4.1 fuses a StridedSlice only if it begins at 1 (a bug; later versions: 0)")
    source = _before(graph, trim)
    if source.op != "ScatterElementsUpdate":
        return f"drops positions in place, {_ONE_VERSION}"
    if not _is_reorder(graph, source):
        raise MissError(source, _OTHER_MOVES)
    return f"moves and drops positions in place, {_ONE_VERSION}"


def _is_reorder(graph: Graph, scatter: Node) -> bool:
    """Return whether a Gather moves positions of a ReadValue to indices in an i32 input."""
    target, index, update = (graph.producer(scatter.source(port)) for port in range(3))
    if target.op == "Convert":
        target = _before(graph, target)
    direct = index.op == "Parameter" and index.outputs[0].element_type == "i32"
    return target.op == "ReadValue" and direct and update.op == "Gather"


def _before(graph: Graph, node: Node) -> Node:
    return graph.producer(node.source())


_PARTIAL = "src/common/low_precision_transformations/src/multiply_partial.cpp"

#: Operators after which the plugin inserts the scaling factor.
_SCALED = frozenset({"MatMul", "Convolution"})

#: Operators through which the plugin moves the factor, up to a split.
_PASSED = frozenset({"Convert", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})


def _maybe_converted(pattern: Pattern) -> Pattern:
    return pattern | op.Convert(pattern)


_READ = _maybe_converted(op.ReadValue(...))

#: The form of a cache by which the plugin recognizes decoders.
_DECODER = op.Assign(
    _maybe_converted(op.Concat(_READ | _maybe_converted(op.Gather(_READ, op.Parameter(), ...)), var())), ...
)


def _scaled_products(model: Model) -> Iterator[Finding]:
    """Yield a finding for each product of two parts of a scaled tensor."""
    if not scales_activations(model) or any(True for _ in _DECODER.find(model.graph)):
        return
    reason = (
        "it multiplies two parts of one tensor, for which scaling of activations fails. The model has "
        "ACTIVATIONS_SCALE_FACTOR, and 2026.4.1 scales models without a cache that is only read, gathered by beams and "
        "appended to; run lower-variadic-split, or make-stateful on a stateless model"
    )
    for product in _products(model.graph):
        yield Finding.of_model(model, "refused", reason, _PARTIAL, product)


def _products(graph: Graph) -> Iterator[Node]:
    for product in graph.of_op("Multiply"):
        parts = [graph.producer(value) for value in product.sources]
        if len(parts) < 2 or parts[0] is not parts[1] or parts[0].op not in {"Split", "VariadicSplit"}:
            continue
        if graph.producer(graph.look_through(parts[0].source(), _PASSED)).op in _SCALED:
            yield product
