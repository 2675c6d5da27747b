"""Latents: cached vectors of which weights compute keys and values in each step."""

import pytest
from support.layout_forms import latent
from support.loaded import exported

from graphpass.analysis.caches.latents import find_latents
from graphpass.testing import tiny_model


def test_a_latent_and_the_rotary_part_of_the_keys():
    (found,) = latent().analysis(find_latents)
    assert {cache.name for cache in found.caches} == {"past_latent", "past_part"}


@pytest.mark.parametrize("place", ["deepseek_v3/onnx", "deepseek_v3/ov-stateful"])
def test_cached_keys_and_values_are_no_latents(place):
    assert exported(place).analysis(find_latents) == ()


@pytest.mark.parametrize("name", ["llama", "lfm2"])
def test_other_families_have_none(name):
    assert tiny_model(name).analysis(find_latents) == ()
