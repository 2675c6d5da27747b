"""The pass `dequantize-caches`: results equal their quantized models, and scales of the reference need not suit."""

from __future__ import annotations

import numpy
import pytest
from support.loaded import exported
from support.reference_tokens import generates_reference_tokens

import graphpass
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.quantized import find_cache_scales
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.rounded_caches import dequantize_caches, round_caches
from graphpass.engine.pipeline import parse, parse_target
from graphpass.errors import UnsupportedError
from graphpass.ir.model import Model
from graphpass.verify import compare, compare_within


def quantized(*, factor: float = 1.0) -> OnnxModel:
    """Return llama with caches in 8 bits, by scales times ``factor``."""
    model = exported("llama/onnx")
    result = run(model, *parse_target("ort{cache-precision=i8}").pipeline(model))
    assert isinstance(result, OnnxModel)
    scales = {
        node.name: tuple(result.graph.constant(node.input(port)) * numpy.float32(factor) for port in (12, 13))
        for node in result.graph.of_op("GroupQueryAttention")
    }
    dequantize_caches(result)
    round_caches(result, scales, 8)
    return result


def run(model: Model, *passes: graphpass.Pass) -> Model:
    return graphpass.PassManager(passes).run(model).model


@pytest.mark.parametrize("target", ["cpu", pytest.param("npu", marks=pytest.mark.slow)])
def test_targets_of_openvino_dequantize_caches(target):
    model = quantized()
    result = run(model, *parse_target(target).pipeline(model))
    assert {cache.precision for cache in analyze_caches(result).caches} == {"f32"}
    comparison = compare_within(model, result)
    assert comparison.passed
    assert comparison.structure.is_complete
    assert "the reference ran with its caches dequantized" in " ".join(comparison.skipped)
    assert generates_reference_tokens(result, "llama")


def test_the_pass_is_idempotent():
    once = run(quantized(), *parse("dequantize-caches"))
    assert not find_cache_scales(once)
    again = graphpass.PassManager(parse("dequantize-caches")).run(once).records[0]
    assert again.outcome == "unchanged"


def test_scales_of_the_reference_need_not_suit():
    reference = quantized(factor=0.2)
    assert compare(reference, reference.clone(), steps=1).passed


@pytest.mark.parametrize(
    ("factor", "reason"), [(0.2, "exceed the range of its scales"), (9.0, "its scales are too coarse")]
)
def test_scales_that_the_reference_lacks_have_to_suit(factor, reason):
    comparison = compare(quantized(), quantized(factor=factor), steps=1)
    assert not comparison.passed
    assert reason in str(comparison.divergence)


def test_lower_operators_names_the_pass_to_run_before():
    with pytest.raises(UnsupportedError, match=r"GP341: .*.*scale quantizes its caches") as raised:
        run(quantized(), *parse("lower-operators"))
    assert raised.value.hint == "run dequantize-caches first"
