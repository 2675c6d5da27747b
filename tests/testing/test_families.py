"""The attention and caches of each family."""

import pytest

import graphpass
from graphpass.testing import FAMILIES, assert_fused, assert_same, run, tiny_model

pytest_plugins = ["graphpass.testing.fixtures"]


@pytest.mark.sampled(4)
def test_targets_fuse_the_attention_of_each_family(family):
    model = tiny_model(family)
    result = run(model, graphpass.get_target("cpu").pipeline(model))
    layers = 1 if FAMILIES[family].convolution else 2
    assert_fused(result, ScaledDotProductAttention=0 if FAMILIES[family].cap else layers)
    assert_same(model, result, steps=2)


def test_each_family_has_caches_in_each_dialect(tiny, family):
    inventory = graphpass.analyze_caches(tiny)
    assert inventory.kind == ("hybrid" if FAMILIES[family].convolution else "kv")
    assert {cache.name for cache in inventory.caches if cache.kind == "unknown"} == set()
