"""Draft trees as arrays."""

from __future__ import annotations

import numpy as np
import pytest

from graphpass.errors import UsageError
from graphpass.runtime.sessions.trees import checked_parents, depths, is_chain, tree_mask

#: 0 - 1 - 3
#:   \ 2       4 beside 0
TREE = np.array([-1, 0, 0, 1, -1])


def test_depths_and_ancestors_are_computed() -> None:
    assert depths(TREE).tolist() == [0, 1, 1, 2, 0]
    seen = tree_mask(TREE)[0] == 0
    assert [np.flatnonzero(row).tolist() for row in seen] == [[0], [0, 1], [0, 2], [0, 1, 3], [4]]
    assert (tree_mask(TREE)[0][~seen] < -1e30).all()


def test_a_chain_is_not_a_tree() -> None:
    assert is_chain(np.array([-1, 0, 1]))
    assert not is_chain(TREE)


@pytest.mark.parametrize("parents", [[-1, 1], [-1, 5], [-2], [0], [-1.0], [[-1]]])
def test_parents_precede_children(parents: object) -> None:
    with pytest.raises(UsageError) as caught:
        checked_parents(parents, len(parents))
    assert caught.value.id == "GP247"
