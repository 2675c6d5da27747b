"""Divergences of f16 forms: rounding is named where the export itself moves as much, and only there."""

from __future__ import annotations

import numpy
import onnx
import pytest
from onnx import numpy_helper
from onnxruntime.transformers.float16 import convert_float_to_float16
from support.loaded import exported
from support.models import export, hybrids

import graphpass
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.model_files import find_model
from graphpass.verify import Comparison, Divergence, compare
from graphpass.verify.conditioning import after_nudges
from graphpass.verify.layers.proof import compare_within


def halved(model: graphpass.Model) -> graphpass.Model:
    return graphpass.PassManager(graphpass.parse("change-precision{to=f16}")).run(model).model


@pytest.mark.slow
@pytest.mark.parametrize("name", ["deepseek_v3", "qwen3_next_dense"])
def test_rounding_is_named_if_the_export_amplifies_it(name):
    """Groups of experts that are nearly tied; and norms of numbers near zero."""
    is_hybrid = name == "qwen3_next_dense"
    before = graphpass.load(hybrids() / name / "onnx-raw") if is_hybrid else exported(f"{name}/onnx")
    divergence = compare(before, halved(before), steps=8, prompt_ids=(297, 222, 295, 143, 176, 204, 129)).divergence
    assert divergence is not None
    assert "rounding alone causes this: the reference differs from itself by" in divergence.reason
    assert "if its embeddings are changed by 2^-12, first at sequence" in divergence.reason


@pytest.mark.slow
def test_more_than_one_rounding_is_named():
    """A router whose second and third expert differ by 1.4e-4, which a single rounding of embeddings leaves."""
    before = exported("qwen3_moe/onnx")
    divergence = compare(before, halved(before), steps=8).divergence
    assert divergence is not None
    assert "if its embeddings are changed by 2^-11" in divergence.reason


@pytest.mark.slow
def test_models_of_equal_structure_may_round_otherwise() -> None:
    """Other experts are chosen at one position, as by the export with its embeddings off by 2^-10."""
    before = exported("qwen3_moe/onnx")
    found = compare_within(before, halved(before), steps=8)
    assert found.passed
    assert found.is_proven
    assert found.max_abs_difference > 1
    assert any(text.startswith("single logits: all logits together differ by") for text in found.skipped)


@pytest.mark.slow
def test_models_of_other_structure_may_not() -> None:
    """A weight of the router is off by two roundings."""
    before = exported("qwen3_moe/onnx")
    after = halved(before)
    router = next(one for one in after.proto.graph.initializer if list(one.dims) == [64, 4])
    weight = numpy_helper.to_array(router).copy()
    weight[3, 2] *= 1 + 2**-9
    router.CopyFrom(numpy_helper.from_array(weight, router.name))
    after.mark_edited()
    found = compare_within(before, after, steps=8)
    assert found.rounding is not None
    assert found.divergence is not None


def test_faults_are_not_called_rounding():
    before = exported("llama/onnx")
    after = halved(before)
    weights = [
        one for one in after.proto.graph.initializer if len(one.dims) == 2 and one.data_type == onnx.TensorProto.FLOAT16
    ]
    weight = numpy_helper.to_array(weights[-1]).copy()
    weight[:, 0] *= -1
    weights[-1].CopyFrom(numpy_helper.from_array(weight.astype(numpy.float16), weights[-1].name))
    after.mark_edited()
    divergence = compare(before, after, steps=1).divergence
    assert divergence is not None
    assert "rounding" not in divergence.reason


def test_ties_in_f16_are_reported() -> None:
    """Nudges smaller than a step of f16 would be lost in a reference that computes in it."""
    model = OnnxModel(convert_float_to_float16(onnx.load(find_model(export("llama", "onnx")))))
    found = Comparison((), ("logits",), 1.0, Divergence(0, 0, "logits", (0,), 0.0, 1.0, "far"), ())
    nudged: list[graphpass.Model] = []

    def against_itself(copy: graphpass.Model) -> Comparison:
        nudged.append(copy)
        return compare(model, copy, steps=2, atol=1e-4, rtol=0)

    named = after_nudges(found, model, "f16", against_itself, lambda copy: (found, 1.0))
    assert nudged
    assert "if its embeddings are changed by 2^-10" in str(named.divergence)
    assert named.rounding is None
