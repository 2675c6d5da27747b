"""Sizes of a pair of static models."""

import pytest

from graphpass.engine.split import Split
from graphpass.errors import UsageError


@pytest.mark.parametrize("sizes", [(1, 1, 1), (64, 16, 128), (8, 8, 8)])
def test_chunks_prompts_and_capacities_ascend(sizes):
    assert Split(*sizes).capacity == sizes[-1]


@pytest.mark.parametrize("sizes", [(64, 0, 128), (64, 65, 128), (64, 16, 63), (64, 16, 2**31)])
def test_inconsistent_sizes_are_refused(sizes):
    with pytest.raises(UsageError, match="GP266"):
        Split(*sizes)
