"""Warnings of roundings that OpenVINO's plugins do by default."""

import re

import pytest
from support.loaded import exported

from graphpass.runtime import open_session
from graphpass.verify.comparison import Comparison
from graphpass.verify.default_rounding import with_default_rounding
from graphpass.verify.request import ProofRequest

PROVEN = Comparison((), ("logits",), 0.0, None, ())
ROUNDING = "DYNAMIC_QUANTIZATION_GROUP_SIZE"


def opened(by_default):
    """Return a function that opens another model where the plugin may round."""

    def open_(model, device, properties):
        return open_session(model if properties[ROUNDING] == "0" else by_default, device=device)

    return open_


@pytest.mark.parametrize("place", ["llama/onnx", "llama/ov-stateful"])
def test_models_that_no_plugin_rounds_are_not_run(place):
    request = ProofRequest(opened=pytest.fail)
    assert with_default_rounding(PROVEN, exported(place), request) is PROVEN


def test_a_stated_property_is_no_default():
    request = ProofRequest(opened=pytest.fail, properties={ROUNDING: "32"})
    assert with_default_rounding(PROVEN, exported("llama/ov-stateful-int8"), request) is PROVEN


def test_equal_logits_need_no_warning():
    model = exported("llama/ov-stateful-int8")
    assert with_default_rounding(PROVEN, model, ProofRequest(opened=opened(model))) is PROVEN


def test_a_default_that_moves_logits_is_a_warning():
    request = ProofRequest(opened=opened(exported("llama/ov-stateful")))
    found = with_default_rounding(PROVEN, exported("llama/ov-stateful-int8"), request)
    assert found.passed
    (warning,) = found.warnings
    number = r"\d[\d.e-]*"
    assert re.fullmatch(
        r"CPU rounds activations to 8 bits before products with compressed weights "
        rf"\({ROUNDING}=\d+ by default\): logits of 40 tokens move by {number}, and \d+ of 40 greedy choices change; "
        rf"the comparison ran with {ROUNDING}=0",
        warning,
    )
