"""Trials on NPUW: logits beside those of the CPU plugin."""

from __future__ import annotations

import onnx
import pytest
from onnxruntime.quantization import QuantType, quantize_dynamic
from support.models import export, vision
from support.static_scales import in_static_int8

import graphpass
from graphpass.targets import check_model


def test_rounded_activations_amplify_the_rounding_of_caches(tmp_path):
    """NPUW's logits differ by 2.4e-2, the CPU plugin's own by 1.6e-2 if its caches are in f16."""
    # The tool writes beside a file that it reads.
    source = onnx.load(export("llama", "onnx") / "model.onnx")
    quantize_dynamic(source, tmp_path / "model.onnx", weight_type=QuantType.QInt8)
    model = graphpass.load(tmp_path / "model.onnx")
    made = graphpass.PassManager(graphpass.get_target("npu").pipeline(model)).run(model).model
    report = check_model(made, "npu")
    assert report.confirmation.outcome == "confirmed", report.confirmation.contradictions
    assert report.holds


def test_caches_are_rounded_without_fused_attention(tmp_path):
    """KV_CACHE_PRECISION=f16 has no effect on decomposed attention on the CPU plugin; NPUW's logits differ."""
    model = graphpass.load(in_static_int8(tmp_path, keeps=("rotary", "lm_head")))
    made = graphpass.PassManager(graphpass.get_target("npu").pipeline(model)).run(model).model
    report = check_model(made, "npu")
    assert report.confirmation.outcome == "confirmed", report.confirmation.contradictions
    assert report.holds


def test_visual_features_that_layers_gather_do_not_reach_them():
    report = check_model(graphpass.load(vision("qwen3_vl")), "npu")
    assert report.confirmation.outcome == "confirmed", report.confirmation.contradictions
    assert [(finding.name, finding.verdict) for finding in report.findings if finding.verdict == "wrong"] == [
        ("deepstack_visual_embeds", "wrong")
    ]


@pytest.mark.parametrize("name", ["qwen3_vl", "gemma3"])
def test_images_reach_layers_and_masks_of_results(name):
    """NPUW adds features of images, and computes windows that do not apply within images."""
    model = graphpass.load(vision(name))
    made = graphpass.PassManager(graphpass.get_target("npu").pipeline(model)).run(model).model
    report = check_model(made, "npu")
    assert report.confirmation.outcome == "confirmed", report.confirmation.contradictions
    assert report.holds


def test_products_of_rounded_activations_are_not_computed_in_integers(tmp_path):
    """NPUW compiles its parts for the CPU plugin, whose integers differ by 2e-2 of the largest logit."""
    model = graphpass.load(in_static_int8(tmp_path, keeps=(), rounded_to=QuantType.QInt8, seed=1))
    made = graphpass.PassManager(graphpass.get_target("npu").pipeline(model)).run(model).model
    report = check_model(made, "npu")
    assert report.confirmation.outcome == "confirmed", report.confirmation.contradictions
