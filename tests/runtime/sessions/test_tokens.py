"""Parts of tokens, and the outputs for the newest tokens of several runs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from graphpass.runtime.sessions.tokens import Tokens, newest


@pytest.mark.parametrize("axes", [(), (3,)])
def test_parts_join_to_the_whole(axes: tuple[int, ...]) -> None:
    ids = np.arange(10).reshape(2, 5)
    whole = Tokens(ids, np.ones_like(ids), np.broadcast_to(ids + 7, (*axes, 2, 5)))
    joined = whole.part(0, 2).then(whole.part(2, 5))
    for name in ("ids", "mask", "positions"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(whole, name))
    assert whole.rows(np.array([1])).end.tolist() == [17]


def test_the_end_ignores_padding() -> None:
    tokens = Tokens(np.zeros((2, 2), np.int64), np.array([[1, 0], [0, 0]]), np.array([[3, 9], [1, 2]]))
    assert tokens.end.tolist() == [4, 0]


@given(runs=st.lists(st.integers(1, 4), min_size=1, max_size=4), data=st.data())
def test_outputs_of_the_newest_tokens(runs: list[int], data: st.DataObject) -> None:
    length = data.draw(st.integers(1, sum(runs)))
    whole = np.arange(2 * sum(runs)).reshape(2, -1, 1)
    ends = np.cumsum(runs)
    results = [{"logits": whole[:, end - size : end]} for end, size in zip(ends, runs, strict=True)]
    np.testing.assert_array_equal(newest(results, runs, length)["logits"], whole[:, -length:])


def test_an_output_without_tokens_is_that_of_the_last_run() -> None:
    results = [{"pooled": np.full((1, 9), run)} for run in range(3)]
    assert newest(results, [2, 2, 1], 5)["pooled"].tolist() == [[2] * 9]
