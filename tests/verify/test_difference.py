"""When two arrays agree."""

from __future__ import annotations

import numpy as np
import pytest
from support.loaded import converted, exported

from graphpass.verify.difference import Tolerance, difference

EXACT = Tolerance(0, 0)
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("reference", "candidate", "tolerance", "index", "largest"),
    [
        ([1.0, 2.0], [1.0, 2.0], EXACT, None, 0),
        ([1.0, 2.0], [1.0, 2.5], EXACT, (1,), 0.5),
        ([1.0, 2.0], [1.5, 2.0], Tolerance(0.5, 0), None, 0.5),
        ([100.0], [101.0], Tolerance(0, 0.01), None, 1),
        ([1.0], [101.0], Tolerance(0, 0.999), (0,), 100),
        ([NAN, 1.0], [NAN, 1.0], EXACT, None, 0),
        ([1.0, NAN], [1.0, 3.0], Tolerance(9, 9), (1,), 0),
        ([1.0, 3.0], [1.0, NAN], Tolerance(9, 9), (1,), 0),
        ([INF, -INF], [INF, -INF], EXACT, None, 0),
        ([INF], [-INF], Tolerance(9, 9), (0,), 0),
        ([1, 2], [1, 3], EXACT, (1,), 1),
        ([True, False], [True, True], EXACT, (1,), 1),
        ([], [], EXACT, None, 0),
    ],
)
def test_index_and_size_of_the_largest_difference(
    reference: list[float], candidate: list[float], tolerance: Tolerance, index: tuple[int, ...] | None, largest: float
) -> None:
    found = difference(np.array(reference), np.array(candidate), None, tolerance)
    assert (found.index, found.largest) == (index, largest)


def test_padding_is_not_compared() -> None:
    reference, candidate = np.zeros((2, 2, 3)), np.zeros((2, 2, 3))
    candidate[1, 0] = 5
    padded = np.array([[True, True], [False, True]])
    assert difference(reference, candidate, padded, EXACT).index is None
    assert difference(reference, candidate, padded, EXACT).largest == 0
    assert difference(reference, candidate, np.ones((2, 2), np.bool_), EXACT).index == (1, 0, 0)
    candidate[1, 1, 2] = 1
    assert difference(reference, candidate, padded, EXACT).index == (1, 1, 2)


def test_rounded_weights_count_beside_the_type() -> None:
    wide, half = exported("llama/onnx"), exported("llama/onnx-fp16")
    demoted = converted(wide, "ort{precision=f16}").model
    models = ((wide, wide), (half, half), (half, converted(half).model), (wide, demoted), (demoted, demoted))
    assert [Tolerance.for_models(*pair).absolute for pair in models] == [1e-3, 0.05, 1e-3, 0.2, 0.05]
