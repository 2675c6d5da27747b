"""Names of inputs and outputs."""

from dialects.openvino.small_models import relu

from graphpass.dialects.openvino.ports import port_name


def test_a_port_has_its_first_or_friendly_name():
    assert port_name(relu("b", "x", "a").inputs[0]) == "x"
    assert port_name(relu("c", "b").inputs[0]) == "b"
    unnamed = relu("a")
    unnamed.inputs[0].set_names(set())
    assert port_name(unnamed.inputs[0]) == "x"
