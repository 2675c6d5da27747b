"""Names of variables: what they are made of, and what a cache's Converts are."""

from __future__ import annotations

import openvino
import pytest
from openvino import opset13 as ops

from graphpass.dialects.openvino.variables import conversions, forget_names, remember_names, split_id


def model() -> openvino.Model:
    node = ops.parameter(openvino.PartialShape([1]), openvino.Type.f32)
    return openvino.Model([ops.result(node)], [node], "")


@pytest.mark.parametrize(
    ("past", "present"),
    [
        ("past_key_values.0.key", "present.0.key"),
        ("past_key_values.10.decoder.value", "present.10.decoder.value"),
        ("cache_params.past.ssm.3", "cache_params.present.ssm.3"),
        ("past_key_values_3_key", "present_3_key"),
    ],
)
def test_ids_of_known_families_come_apart(past, present):
    expected = (
        (past, present)
        if past[15] in "." or "cache" in past
        else (f"input_restored.{past}{present}", f"output_restored.{past}{present}")
    )
    assert split_id(model(), past + present) == expected


def test_what_was_remembered_comes_first():
    native = model()
    remember_names(native, {"past_key_values.0.keypresent.0.key": ("past_key_values.0.keypre", "sent.0.key")})
    assert split_id(native, "past_key_values.0.keypresent.0.key") == ("past_key_values.0.keypre", "sent.0.key")
    assert split_id(native, "past_key_values.1.keypresent.1.key") == ("past_key_values.1.key", "present.1.key")


@pytest.mark.parametrize("name", ["a", "/layers.0/key <&> \"'", "ключ", "x" * 300])
def test_names_survive_a_file(tmp_path, name):
    native = model()
    remember_names(native, {f"{name}b": (name, "b")})
    openvino.save_model(native, tmp_path / "model.xml")
    assert split_id(openvino.Core().read_model(tmp_path / "model.xml"), f"{name}b") == (name, "b")


def test_forgetting():
    native = model()
    native.set_rt_info("kept", ["other"])
    forget_names(native)
    remember_names(native, {"ab": ("a", "b")})
    forget_names(native)
    assert split_id(native, "ab")[0] == "input_restored.ab"
    assert set(native.rt_info) == {"other"}


class TestConversions:
    def parameter(self) -> openvino.Node:
        return ops.parameter(openvino.PartialShape([-1, 2]), openvino.Type.f16)

    def test_one_or_several_of_one_type(self):
        past = self.parameter()
        first, second, shape = ops.convert(past, "f32"), ops.convert(past, "f32"), ops.shape_of(past)
        assert {node.get_name() for node in conversions(past.output(0))} == {first.get_name(), second.get_name()}
        assert shape.get_input_size() == 1

    def test_of_two_types(self):
        past = self.parameter()
        kept = [ops.convert(past, "f32"), ops.convert(past, "f64")]
        assert not conversions(past.output(0))
        assert len(kept) == 2

    def test_beside_another_reader(self):
        past = self.parameter()
        kept = [ops.convert(past, "f32"), ops.relu(past)]
        assert not conversions(past.output(0))
        assert len(kept) == 2

    def test_no_reader(self):
        assert not conversions(self.parameter().output(0))
