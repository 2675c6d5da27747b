"""A cache handed over in place is the cache copied through a temporary."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from graphpass.errors import GraphpassError
from graphpass.runtime.pair.hand_over import Placement, hand_over

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


def window(buffer: NDArray[Any], placement: Placement, extent: tuple[int, ...]) -> NDArray[Any]:
    """Return the part of ``buffer`` in the placement's extent."""
    strides = [stride * buffer.itemsize for stride in placement.strides()]
    return np.lib.stride_tricks.as_strided(buffer[placement.offset :], extent, strides)


@st.composite
def moves(draw: st.DrawFn) -> tuple[Placement, Placement, tuple[int, ...], int]:
    """Two placements that fit into a buffer, its size, and what both of them hold."""
    extent = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=5)))
    room = st.sampled_from([0, 0, 0, 1, 2, 5])
    placements = [
        Placement(tuple(size + draw(room) for size in extent), draw(st.integers(0, 40))) for _ in ("source", "to")
    ]
    return *placements, extent, max(placement.end(extent) for placement in placements) + draw(st.integers(0, 5))


Move = tuple[Placement, Placement, tuple[int, ...], int]
DTYPES = st.sampled_from([np.float32, np.float16, np.int8])

#: Row by row, or through a copy.
SHORT_ROWS = st.sampled_from([0, 1 << 20])


@settings(max_examples=300)
@given(moves(), DTYPES, SHORT_ROWS)
def test_handing_over_equals_a_copy_through_a_temporary(move: Move, dtype: type[np.generic], short: int) -> None:
    check_move(move, dtype, short)


@pytest.mark.slow
@settings(max_examples=2500)
@given(moves(), DTYPES, SHORT_ROWS)
def test_many_moves_equal_copies_through_a_temporary(move: Move, dtype: type[np.generic], short: int) -> None:
    check_move(move, dtype, short)


def check_move(move: Move, dtype: type[np.generic], short: int) -> None:
    source, destination, extent, size = move
    buffer = (np.arange(size) % 120).astype(dtype)
    expected = buffer.copy()
    temporary = window(expected, source, extent).copy()
    window(expected, destination, extent)[...] = temporary
    hand_over(buffer, source, destination, extent, short=short)
    np.testing.assert_array_equal(buffer, expected)


@pytest.mark.parametrize(("prompt", "capacity"), [(16, 16), (16, 24), (24, 16), (8, 200), (17, 18)])
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("held", [1, 7, 8])
def test_prefill_to_decode_and_back(prompt: int, capacity: int, heads: int, transposed: bool, held: int) -> None:
    def at(length: int) -> tuple[int, ...]:
        return (1, heads, 5, length) if transposed else (1, heads, length, 5)

    buffer = np.zeros(heads * 5 * max(prompt, capacity), np.float32)
    values = np.arange(1, 1 + heads * 5 * held, dtype=np.float32).reshape(at(held))
    window(buffer, Placement(at(prompt)), at(held))[...] = values
    hand_over(buffer, Placement(at(prompt)), Placement(at(capacity)), at(held))
    np.testing.assert_array_equal(window(buffer, Placement(at(capacity)), at(held)), values)
    hand_over(buffer, Placement(at(capacity)), Placement(at(prompt)), at(held))
    np.testing.assert_array_equal(window(buffer, Placement(at(prompt)), at(held)), values)


def test_rows_of_equal_layout_are_copied_together() -> None:
    buffer = np.zeros(4 * 20 * 1024, np.float32)
    layers = (2, 1, 2)
    count = hand_over(buffer, Placement((*layers, 10, 1024)), Placement((*layers, 20, 1024)), (*layers, 10, 1024))
    assert count == 3 * 10 * 1024 * 4  # the first head stays where it is
    assert hand_over(buffer, Placement((2, 8)), Placement((2, 8)), (2, 8)) == 0
    assert hand_over(buffer, Placement((2, 8)), Placement((2, 8), 3), (2, 8)) == 64
    assert hand_over(buffer, Placement((2, 8)), Placement((2, 9)), (2, 0)) == 0


def test_no_temporary_of_the_caches_size() -> None:
    extent, room = (1, 8, 1024, 128), (1, 8, 2048, 128)
    buffer = np.zeros(np.prod(room), np.float32)
    tracemalloc.start()
    hand_over(buffer, Placement(extent), Placement(room), extent)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 * 1024


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.float4_e2m1fn])
def test_elements_of_less_than_a_byte(dtype: Any) -> None:
    with pytest.raises(GraphpassError, match=f"type {np.dtype(dtype).name} cannot") as caught:
        hand_over(np.zeros(64, dtype), Placement((2, 4)), Placement((2, 8)), (2, 4))
    assert caught.value.id == "GP390"


@pytest.mark.parametrize("name", ["u4", "i4", "nf4", "u1", "f4e2m1"])
def test_elements_smaller_than_a_byte_are_refused(name: str) -> None:
    with pytest.raises(GraphpassError, match=f"type {name} cannot") as caught:
        hand_over(np.zeros(64, np.uint8), Placement((2, 4)), Placement((2, 8)), (2, 4), name)
    assert caught.value.id == "GP390"


_BUFFER = np.zeros(16, np.float32)


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda: hand_over(_BUFFER, Placement((2, 4)), Placement((2, 8)), (2, 5)), r"\[2, 5\] .* the source \[2, 4\]"),
        (lambda: hand_over(_BUFFER, Placement((2, 4)), Placement((8,)), (2, 4)), r"the destination \[8\]"),
        (lambda: hand_over(_BUFFER, Placement((2, 4)), Placement((2, 8), 5), (2, 4)), "element 5 .* buffer of 16"),
        (lambda: hand_over(_BUFFER, Placement((2, 4), -1), Placement((2, 8)), (2, 4)), "element -1"),
        (lambda: hand_over(_BUFFER, Placement((2, 4)), Placement((2, 8)), (2, -1)), r"\[2, -1\]"),
        (lambda: hand_over(_BUFFER[::2], Placement((2, 4)), Placement((2, 4)), (2, 4)), "contiguous"),
    ],
)
def test_incompatible_caches_are_refused(act: Callable[[], object], words: str) -> None:
    with pytest.raises(GraphpassError, match=words) as caught:
        act()
    assert caught.value.id == "GP265"
