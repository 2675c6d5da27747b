"""Names of variables, made of those of past and present."""

from __future__ import annotations

import openvino
import pytest
from openvino import opset13 as ops

import graphpass
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.variables import forget_names, remember_names, split_id


def model() -> OpenVINOModel:
    node = ops.parameter(openvino.PartialShape([1]), openvino.Type.f32)
    return OpenVINOModel(openvino.Model([ops.result(node)], [node], ""))


@pytest.mark.parametrize(
    ("past", "present"),
    [
        ("past_key_values.0.key", "present.0.key"),
        ("past_key_values.10.decoder.value", "present.10.decoder.value"),
        ("cache_params.past.ssm.3", "cache_params.present.ssm.3"),
        ("past_key_values_3_key", "present_3_key"),
    ],
)
def test_variable_ids_of_known_families_are_split(past, present):
    expected = (
        (past, present)
        if past[15] in "." or "cache" in past
        else (f"input_restored.{past}{present}", f"output_restored.{past}{present}")
    )
    assert split_id(model(), past + present) == expected


def test_remembered_names_come_first():
    one = model()
    remember_names(one, {"past_key_values.0.keypresent.0.key": ("past_key_values.0.keypre", "sent.0.key")})
    assert split_id(one, "past_key_values.0.keypresent.0.key") == ("past_key_values.0.keypre", "sent.0.key")
    assert split_id(one, "past_key_values.1.keypresent.1.key") == ("past_key_values.1.key", "present.1.key")


@pytest.mark.parametrize("name", ["a", "/layers.0/key <&> \"'", "ключ", "x" * 300])
def test_names_survive_a_file(tmp_path, name):
    one = model()
    remember_names(one, {f"{name}b": (name, "b")})
    graphpass.save(one, tmp_path / "model.xml")
    assert split_id(graphpass.load(tmp_path / "model.xml"), f"{name}b") == (name, "b")


def test_forgotten_names_leave_no_note():
    one = model()
    one.ov_model.set_rt_info("kept", ["other"])
    forget_names(one)
    remember_names(one, {"ab": ("a", "b")})
    forget_names(one)
    assert split_id(one, "ab")[0] == "input_restored.ab"
    assert set(one.ov_model.rt_info) == {"other"}


def test_forgetting_leaves_other_notes():
    one = model()
    remember_names(one, {"ab": ("a", "b")})
    one.write_note("trim", "begin-one")
    forget_names(one)
    assert (one.read_note("trim"), one.read_note("variables")) == ("begin-one", None)
