"""Scales, soft caps and epsilons that differ too little to show in logits."""

from dataclasses import replace

import pytest

from graphpass.testing import FAMILIES, parse_model, run, tiny_model
from graphpass.testing.families import text_of_family
from graphpass.verify.difference import Tolerance
from graphpass.verify.numbers import unlike_numbers

F32, F16 = Tolerance(1e-3, 1e-3), Tolerance(1e-2, 1e-2)


def test_numbers_are_read_from_fused_attention_as_well():
    model = tiny_model("gemma2", "openvino")
    assert unlike_numbers(model, run(model, "fuse-attention"), F32) is None


def test_another_cap_is_named():
    model, other = tiny_model("gemma2"), tiny_model(replace(FAMILIES["gemma2"], cap=50.1))
    place, words = unlike_numbers(model, other, F32)
    assert place.startswith("attention ")
    assert words == "its softcap is 50, the candidate's 50.1"
    assert unlike_numbers(model, other, F16) is None


@pytest.mark.parametrize("norm", ["llama", "gpt2"])
def test_another_epsilon_is_named(norm):
    text = text_of_family(FAMILIES[norm], 1)
    assert "1e-06" in text
    other = text.replace("1e-06", "2e-06", 1)
    place, words = unlike_numbers(parse_model(text), parse_model(other), F16)
    assert place.startswith("norm ")
    assert words == "its epsilon is 1e-06, the candidate's 2e-06"


def test_models_of_other_layers_are_not_paired():
    assert unlike_numbers(tiny_model("llama"), tiny_model("llama", layers=3), F32) is None
