"""Memory in which caches stay."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from support.models import export

from graphpass.io import load
from graphpass.runtime import open_session
from graphpass.runtime.backends.buffers import CacheBuffer


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 4)), max_size=12))
def test_content_survives_growth_and_gathers(steps: list[tuple[int, int]]) -> None:
    buffer = CacheBuffer(np.zeros((2, 3, 0, 4)), sequence=2)
    expected = np.zeros((2, 3, 0, 4))
    for count, dropped in steps:
        new = np.full((2, 3, count, 4), float(count))
        present = np.concatenate([buffer.content, new], axis=2)
        room = buffer.room(present.shape[2])
        assert not np.shares_memory(room, buffer.content)
        room[...] = present
        buffer.written()
        expected = np.concatenate([expected, new], axis=2)
        if dropped:
            entries = np.arange(max(expected.shape[2] - dropped, 0))[::-1]
            expected = expected[:, :, entries]
            assert buffer.gather(entries, None, 0) == expected.nbytes
        np.testing.assert_array_equal(buffer.content, expected)
        assert buffer.content.flags.c_contiguous


def test_gathers_rows_and_entries() -> None:
    start = np.arange(2 * 3 * 4.0).reshape(2, 3, 4)
    buffer = CacheBuffer(start.copy(), sequence=1)
    buffer.gather(np.array([2, 0]), np.array([1, 1, 0]), 0)
    np.testing.assert_array_equal(buffer.content, start[[1, 1, 0]][:, [2, 0]])


@pytest.mark.parametrize(("name", "variant"), [("llama", "onnx"), ("lfm2", "ov-stateless"), ("mamba", "onnx-raw")])
def test_steps_within_the_buffers_copy_nothing(name: str, variant: str) -> None:
    session = open_session(load(export(name, variant)))
    session.prefill([3, 1, 4, 1, 5])
    session.step([9])
    copied, places = session.stats.bytes_copied, set()
    for token in range(8):
        session.step([token + 1])
        places |= {buffer.content.ctypes.data for buffer in session.store._buffers.values()}
    assert session.stats.bytes_copied == copied
    assert len(places) <= 4 * len(session.store._buffers)


def test_a_trim_copies_nothing_if_entries_can_be_masked() -> None:
    session = open_session(load(export("llama", "onnx")))
    session.prefill(list(range(1, 200)))
    session.step([[1, 2, 3, 4]])
    copied = session.stats.bytes_copied
    session.trim(3)
    session.step([5])
    assert session.stats.bytes_copied == copied
