"""Products of two parts of one tensor: refused by the GPU plugin where it scales activations, and only there."""

from __future__ import annotations

import pytest
from support.loaded import openvino_model

import graphpass
from graphpass.targets import check_model

PRODUCTS = {f"__module.model.model.layers.{layer}.conv/aten::mul/Multiply" for layer in (0, 2)}

#: An export of lfm2, the passes that edit it, and whether its gated convolutions are refused then.
CASES = [
    ("ov-stateful", "", False),
    ("ov-stateful", "insert-reorder{form=cut}", True),
    ("ov-stateful", "insert-reorder", True),
    ("ov-stateful", "insert-reorder{trim=begin-one}", True),
    ("ov-stateful", "insert-reorder,lower-variadic-split", False),
    ("ov-stateful", "insert-snapshot", False),
    ("ov-stateless", "", True),
    ("ov-stateless", "lower-variadic-split", False),
    ("ov-stateless", "make-stateful", False),
    ("ov-stateless", "make-stateful{beam-index=false}", False),
]


def refused(report):
    return {finding.node for finding in report.findings if finding.verdict == "refused"}


def edited(variant, text):
    model = openvino_model("lfm2", variant)
    return graphpass.PassManager(graphpass.parse(text)).run(model).model if text else model


@pytest.mark.parametrize(("variant", "text", "is_refused"), CASES)
def test_refusals_are_predicted(variant, text, is_refused):
    report = check_model(edited(variant, text), "gpu", confirm=False)
    assert refused(report) == (PRODUCTS if is_refused else set())


def test_a_model_without_the_option_is_accepted():
    model = edited("ov-stateful", "insert-reorder{form=cut}")
    model.ov_model.set_rt_info("-1", ["runtime_options", "ACTIVATIONS_SCALE_FACTOR"])
    assert not refused(check_model(model, "gpu", confirm=False))


def test_products_of_unscaled_tensors_are_taken():
    """The parts of mamba's split are gated by others, and positions of rotary embedding are split, too."""
    for name in ("mamba", "deepseek_v3"):
        assert not refused(check_model(openvino_model(name, "ov-stateless"), "gpu", confirm=False))


@pytest.mark.slow
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(("variant", "text", "is_refused"), CASES)
def test_predictions_hold_on_the_plugin(variant, text, is_refused):
    report = check_model(edited(variant, text), "gpu")
    assert report.confirmation.outcome == "confirmed", report.confirmation.contradictions
    assert bool(refused(report)) is is_refused
