"""Caches by layer and role; a cache of unknown role beside a key or value."""

from graphpass.analysis.caches.layers import roles_by_layer
from graphpass.ir.cache import Axes, Cache, Inventory


def cache(name, role, layer, kind="kv"):
    return Cache(name, kind, role, layer, Axes(), None, "f32", name, name)


def names(*caches):
    inventory = Inventory(False, caches, (), (), ())
    return [{role: cache.name for role, cache in layer.items()} for layer in roles_by_layer(inventory)]


def test_layers_are_in_order_and_caches_without_one_are_omitted():
    assert names(cache("b", "key", 1), cache("a", "key", 0), cache("c", "value", None)) == [{"key": "a"}, {"key": "b"}]


def test_an_unknown_role_beside_a_key_is_the_value():
    assert names(cache("a", "unknown", 0), cache("b", "key", 0)) == [{"key": "b", "value": "a"}]
    assert names(cache("a", "unknown", 0), cache("b", "value", 0)) == [{"key": "a", "value": "b"}]


def test_an_unknown_role_stays_out_if_it_is_ambiguous_or_no_kv_cache():
    assert names(cache("a", "unknown", 0)) == [{}]
    assert names(cache("a", "unknown", 0), cache("b", "key", 0), cache("c", "value", 0)) == [{"key": "b", "value": "c"}]
    assert names(cache("a", "unknown", 0, "linear"), cache("b", "key", 0)) == [{"key": "b"}]
