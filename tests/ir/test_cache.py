"""What a cache says of its own size."""

import pytest

from graphpass.ir.cache import Axes, Cache

KV = Axes(batch=0, heads=1, sequence=2, head_dim=3)


def cache(shape, axes, element_type="f32", name="past_key_values.3.key"):
    return Cache(name, "kv", "key", 0, axes, shape, element_type, "ReadValue_9", None)


@pytest.mark.parametrize(
    ("shape", "axes", "element_type", "per_token", "fixed"),
    [
        (("batch", 8, "past", 128), KV, "f16", 8 * 128 * 2, None),
        ((None, 2, None, 16), KV, "f32", 2 * 16 * 4, None),
        ((1, 2, 4096, 16), KV, "u4", 2 * 16 // 2, None),
        ((None, 2, None, "kv_cache_dim"), KV, "f32", None, None),
        ((None, 64, 4), Axes(batch=0), "f32", None, 64 * 4 * 4),
        ((None, 4, 16, 8), Axes(batch=0), "bf16", None, 4 * 16 * 8 * 2),
        (None, Axes(), "f32", None, None),
    ],
)
def test_bytes_of_a_cache_are_counted(shape, axes, element_type, per_token, fixed):
    found = cache(shape, axes, element_type)
    assert (found.bytes_per_token, found.fixed_bytes) == (per_token, fixed)


@pytest.mark.parametrize(
    ("name", "index"),
    [("past_key_values.12.key", 12), ("past.conv.1present.conv.1", 1), ("layers.2.conv_states.0", 2), ("state", None)],
)
def test_index_is_read_from_the_name(name, index):
    assert cache((None, 2, None, 16), KV, name=name).index == index
