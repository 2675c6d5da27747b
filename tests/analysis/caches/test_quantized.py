"""Scales of quantized caches: rounding to their bits, and equality."""

import numpy
import pytest

from graphpass.analysis.caches.quantized import CacheScale, round_cache


@pytest.mark.parametrize(
    ("bits", "content", "expected"),
    [(8, [0.24, 0.26, 200.0, -200.0], [0.0, 0.5, 63.5, -64.0]), (4, [0.75, 1.25, 9.0, -9.0], [1.0, 1.0, 3.5, -4.0])],
)
def test_values_are_rounded_to_even_and_clipped_to_the_range_of_their_bits(bits, content, expected):
    found = round_cache(numpy.array(content), numpy.array([0.5], numpy.float32), bits)
    assert found.dtype == numpy.float32
    assert found.tolist() == expected


def test_each_head_and_channel_has_its_scale():
    scale = CacheScale("a", 4, numpy.array([[[1.0, 2.0]], [[4.0, 8.0]]], numpy.float32))
    assert scale.rounded(numpy.full([1, 2, 3, 2], 5.0))[0, :, 1].tolist() == [[5.0, 4.0], [4.0, 8.0]]
    assert scale.largest.ravel().tolist() == [7.0, 14.0, 28.0, 56.0]


@pytest.mark.parametrize(
    ("bits", "scale", "equal"), [(8, [0.5], True), (4, [0.5], False), (8, [0.25], False), (8, None, False)]
)
def test_scales_are_equal_by_bits_and_constants(bits, scale, equal):
    other = CacheScale("b", bits, None if scale is None else numpy.array(scale, numpy.float32))
    assert CacheScale("a", 8, numpy.array([0.5], numpy.float32)).equals(other) == equal
    assert not CacheScale("a", 8, None).equals(CacheScale("a", 8, None))
