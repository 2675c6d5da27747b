"""Rounding to 16 bits: the nearest number, ties to even ones, in range where asked."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given, settings, strategies as st

from graphpass.dialects.rounding import LARGEST, rounded_bytes

FLOATS = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=40)


def in_bf16(numbers: list[float], *, cut: bool = False) -> tuple[numpy.ndarray, bool]:
    content, beyond = rounded_bytes(numpy.array(numbers, numpy.float32), "bf16", cut=cut)
    return (numpy.frombuffer(content, "<u2").astype(numpy.uint32) << 16).view(numpy.float32), beyond


@settings(max_examples=200, deadline=None)
@given(FLOATS)
def test_bf16_is_the_nearest_number(numbers: list[float]) -> None:
    made, beyond = in_bf16(numbers)
    assert beyond == any(abs(number) >= 2.0**127 * (2 - 2**-8) for number in numbers)
    for number, got in zip(numbers, made, strict=True):
        bits = int(numpy.array(number, numpy.float32).view(numpy.uint32))
        ends = numpy.array([bits & 0xFFFF0000, (bits & 0xFFFF0000) + 0x10000], numpy.uint32).view(numpy.float32)
        if not numpy.isfinite(ends).all():
            continue
        away = [abs(number - float(end)) for end in ends]
        nearest = {float(end) for end, far in zip(ends, away, strict=True) if far == min(away)}
        assert float(got) in nearest
        if len(nearest) == 2:
            assert int(numpy.array(got, numpy.float32).view(numpy.uint32)) >> 16 & 1 == 0


def test_nan_and_infinity_stay() -> None:
    made, beyond = in_bf16([float("nan"), float("inf"), float("-inf"), -0.0])
    assert numpy.isnan(made[0])
    assert made[1:].tolist() == [float("inf"), float("-inf"), 0.0]
    assert numpy.signbit(made[3])
    assert not beyond
    quiet = numpy.array([0x7F800001, 0xFFFFFFFF], numpy.uint32).view(numpy.float32)
    content, _ = rounded_bytes(quiet, "bf16")
    assert numpy.isnan((numpy.frombuffer(content, "<u2").astype(numpy.uint32) << 16).view(numpy.float32)).all()


@pytest.mark.parametrize("half", ["f16", "bf16"])
def test_numbers_beyond_the_range_are_reported_or_clipped(half) -> None:
    lowest = numpy.array([numpy.finfo(numpy.float32).min], numpy.float32)
    assert rounded_bytes(lowest, half)[1]
    content, beyond = rounded_bytes(lowest, half, cut=True)
    assert not beyond
    assert rounded_bytes(numpy.array([-LARGEST[half]], numpy.float32), half) == (content, False)
