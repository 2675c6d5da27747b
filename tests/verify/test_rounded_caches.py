"""Caches in integers: unsuitable scales, and other faults beside rounding."""

from __future__ import annotations

import numpy
import pytest
from support.loaded import converted, exported

from graphpass.analysis.caches.quantized import find_cache_scales
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.rounded_caches import dequantize_caches, round_caches
from graphpass.verify import compare


def rescaled(model: OnnxModel, factor: float) -> OnnxModel:
    """Return ``model`` with scales times ``factor``."""
    scales, graph = {}, model.graph
    (bits,) = {scale.bits for scale in find_cache_scales(model).values()}
    for node in graph.of_op("GroupQueryAttention"):
        keys, values = (graph.constant(node.input(port)) * numpy.float32(factor) for port in (12, 13))
        scales[node.name] = keys, values
    copy = model.clone()
    dequantize_caches(copy)
    round_caches(copy, scales, bits)
    return copy


@pytest.mark.parametrize("bits", [8, 4])
def test_unsuitable_scales_are_found(bits):
    model, right = exported("llama/onnx"), converted(exported("llama/onnx"), f"ort{{cache-precision=i{bits}}}").model
    small = compare(model, rescaled(right, 0.5), steps=1)
    assert "of its values exceed the range of its scales" in str(small.divergence)
    wide = compare(model, rescaled(right, 8), steps=1)
    assert str(wide.divergence).endswith("its scales are too coarse")


def test_other_faults_are_found_without_rounding():
    model, result = exported("llama/onnx"), converted(exported("llama/onnx"), "ort{cache-precision=i4}").model
    assert isinstance(result, OnnxModel)
    faulty = result.clone()
    node = next(node for node in faulty.proto.graph.node if node.op_type == "GroupQueryAttention")
    next(entry for entry in node.attribute if entry.name == "scale").f *= 1.01
    faulty.mark_edited()
    found = compare(model, faulty, steps=1)
    assert "reference 0.857" in str(found.divergence)
    assert found.sequences[0].description.startswith("caches dequantized: ")
