"""Axes that a Reshape merges or splits."""

import pytest

from graphpass.ir.axis_groups import axis_groups


@pytest.mark.parametrize(
    ("old", "new", "groups"),
    [
        ((2, 3, 8), (6, 8), [([0, 1], [0]), ([2], [1])]),
        (("b", "n", 12), ("b", "n", 3, 4), [([0], [0]), ([1], [1]), ([2], [2, 3])]),
        (("b", 3, "n", 4), (None, "n", 4), [([0, 1], [0]), ([2], [1]), ([3], [2])]),
        (("b", "n", 2, 6), (None, None, 12), [([0], [0]), ([1], [1]), ([2, 3], [2])]),
        ((1, "n", 4), ("n", 4), [([0], []), ([1], [0]), ([2], [1])]),
        (("n", 4), ("n", 1, 4), [([0], [0]), ([1], [2])]),
        ((6,), (2, 3), [([0], [0, 1])]),
        ((), (), []),
    ],
)
def test_groups_cover_the_same_elements(old, new, groups):
    assert axis_groups(old, new) == groups


@pytest.mark.parametrize(
    ("old", "new"),
    [((2, 6), (3, 4)), (("a", "b", 4), ("c", "d", "e", 8)), (("n", 4), ("n",)), ((4, 6, 5), (8, 3, "x"))],
)
def test_undetermined_groups_are_none(old, new):
    assert axis_groups(old, new) is None
