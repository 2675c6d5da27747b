"""Models compiled in OpenVINO: their variables, settings and devices."""

import numpy
import pytest

from graphpass.errors import UnsupportedError
from graphpass.runtime.backends.device import Device
from graphpass.runtime.backends.openvino_request import (
    OpenVINORequest,
    computes_in_integers,
    default_group_size,
    is_there,
)
from graphpass.testing import parse_model

SUM = """%x = Parameter : f32[1, 4]
%zero = Broadcast(0.0, [1, 4])
%past = ReadValue(%zero) {variable=total} : f32[1, 4]
%sum = Add(%past, %x)
Assign(%sum) {variable=total}
Result(%sum) {name=y}"""
GROWING = """%x = Parameter : f32[?, ?, 4]
%shape = ShapeOf(%x) : i64[3]
%batch = Gather(%shape, [0], 0) : i64[1]
%size = Concat(%batch, [0, 4]) {axis=0}
%empty = Broadcast(0.0, %size)
%past = ReadValue(%empty) {variable=past} : f32[?, ?, 4]
%all = Concat(%past, %x) {axis=1}
Assign(%all) {variable=past}
%y = Multiply(%all, 2.0)
Result(%y) {name=y}"""
ONE = {"x": numpy.ones((1, 4), numpy.float32)}


@pytest.fixture
def summing():
    return OpenVINORequest(parse_model(SUM, "openvino"), Device())


def total(request):
    return request.infer(ONE)["y"].tolist()


def test_variables_are_kept_reset_and_set(summing):
    assert [total(summing), total(summing)] == [[[1] * 4], [[2] * 4]]
    assert summing.state("total").tolist() == [[2] * 4]
    assert summing.hands_out("total")
    summing.reset_state(kept={"total"})
    assert total(summing) == [[3] * 4]
    summing.reset_state()
    assert total(summing) == [[1] * 4]
    summing.set_state("total", numpy.full((1, 4), 7, numpy.float32))
    assert total(summing) == [[8] * 4]
    summing.renew()
    assert total(summing) == [[1] * 4]


def test_a_variable_that_grows_alone_keeps_its_length():
    """The CPU plugin fixes the length of a variable to 0 if no other has an equal initial value."""
    request = OpenVINORequest(parse_model(GROWING, "openvino"), Device())
    lengths = [request.infer({"x": numpy.ones((1, size, 4), numpy.float32)})["y"].shape[1] for size in (3, 1)]
    request.reset_state()
    lengths.append(request.infer({"x": numpy.ones((1, 2, 4), numpy.float32)})["y"].shape[1])
    assert lengths == [3, 4, 2]


def test_results_are_copies_of_the_runtime_s_memory():
    text = "%x = Parameter : f32[1, 4]\n%y = Add(%x, 1.0)\nResult(%y) {name=y}"
    request = OpenVINORequest(parse_model(text, "openvino"), Device())
    first = request.infer(ONE)["y"]
    request.infer({"x": 5 * ONE["x"]})
    assert first.tolist() == [[2] * 4]


def test_exact_settings_override_the_plugin_s_defaults():
    model = parse_model(SUM, "openvino")
    exact = OpenVINORequest(model, Device()).settings
    assert exact["INFERENCE_PRECISION_HINT"] == "f32"
    assert exact["KV_CACHE_PRECISION"] == "f32"
    stated = OpenVINORequest(model, Device(properties={"KV_CACHE_PRECISION": "u8"})).settings
    assert stated["KV_CACHE_PRECISION"] == "u8"


def test_missing_devices_are_refused():
    assert is_there("CPU")
    assert not is_there("XPU")
    with pytest.raises(UnsupportedError, match="finds no device 'XPU' here") as error:
        OpenVINORequest(parse_model(SUM, "openvino"), Device("XPU"))
    assert error.value.id == "GP321"
    with pytest.raises(UnsupportedError, match="finds no device 'XPU' here"):
        OpenVINORequest(parse_model(SUM, "openvino"), Device("AUTO:CPU,XPU"))


def test_a_failed_run_has_an_id(summing):
    with pytest.raises(UnsupportedError) as error:
        summing.infer({"x": numpy.ones((2, 5), numpy.float32)})
    assert error.value.id == "GP322"


def test_group_sizes_are_those_of_the_model_or_the_plugin():
    model = parse_model(SUM, "openvino")
    assert default_group_size(model, "XPU") is None
    model.ov_model.set_rt_info("0", ["runtime_options", "DYNAMIC_QUANTIZATION_GROUP_SIZE"])
    assert default_group_size(model, "CPU") is None
    model.ov_model.set_rt_info("64", ["runtime_options", "DYNAMIC_QUANTIZATION_GROUP_SIZE"])
    assert default_group_size(model, "CPU") == "64"


def test_products_of_rounded_activations_are_computed_in_integers():
    text = """%x = Parameter : f32[4, 16]
    %w = Constant : f32[16, 8]
    %r = FakeQuantize(%x, 0.0, 25.5, 0.0, 25.5) {levels=256}
    %y = MatMul({})
    Result(%y) {{name=y}}"""
    rounded, plain = (
        parse_model(text.replace("{levels=256}", "{{levels=256}}").format(f"%{name}, %w"), "openvino") for name in "rx"
    )
    assert computes_in_integers(rounded, "CPU")
    assert not computes_in_integers(plain, "CPU")
    assert not computes_in_integers(rounded, "NPU")
