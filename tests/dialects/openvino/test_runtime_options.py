"""Options for plugins in the rt_info of a model."""

import graphpass
from graphpass.dialects.openvino.runtime_options import (
    ACTIVATIONS_SCALE,
    KV_PRECISION,
    runtime_options,
    scales_activations,
    set_runtime_option,
)
from graphpass.testing import parse_model

TEXT = "%x = Parameter : f32[4]\n%y = Relu(%x)\nResult(%y) {name=y}"


def test_options_are_sorted_and_survive_a_file(tmp_path):
    model = parse_model(TEXT, "openvino")
    assert runtime_options(model) == {}
    assert not scales_activations(model)
    set_runtime_option(model, KV_PRECISION, "u8")
    set_runtime_option(model, ACTIVATIONS_SCALE, "8.0")
    assert list(runtime_options(model).items()) == [(ACTIVATIONS_SCALE, "8.0"), (KV_PRECISION, "u8")]
    graphpass.save(model, tmp_path / "m.xml")
    stored = graphpass.load(tmp_path / "m.xml")
    assert runtime_options(stored) == runtime_options(model)
    assert scales_activations(stored)


def test_a_factor_of_0_does_not_scale():
    model = parse_model(TEXT, "openvino")
    set_runtime_option(model, ACTIVATIONS_SCALE, "0")
    assert not scales_activations(model)


def test_onnx_has_no_options():
    assert runtime_options(parse_model(TEXT)) == {}
