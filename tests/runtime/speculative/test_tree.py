"""Drafts as a tree of tokens: common prefixes are merged, and the path of the model's choices is read."""

import pytest

from graphpass.runtime.speculative.tree import DraftTree

TREE = DraftTree.of(7, [[1, 2, 3], [1, 4], [5]], depth=3)


def test_common_prefixes_are_merged():
    assert DraftTree((7, 1, 2, 3, 4, 5), (-1, 0, 1, 2, 1, 0)) == TREE


@pytest.mark.parametrize(
    ("continuations", "depth", "tokens", "chain"),
    [
        ([], 3, (7,), True),
        ([[1, 2, 3], [1, 2]], 3, (7, 1, 2, 3), True),
        ([[1, 2, 3], [1, 2, 4]], 2, (7, 1, 2), True),
        ([[1, 2], [2, 2]], 2, (7, 1, 2, 2, 2), False),
    ],
)
def test_branches_are_cut_at_the_depth(continuations, depth, tokens, chain):
    tree = DraftTree.of(7, continuations, depth)
    assert (tree.tokens, tree.is_chain) == (tokens, chain)


@pytest.mark.parametrize(
    ("choices", "stop", "path"),
    [
        ([1, 2, 3, 9, 9, 9], (), [0, 1, 2, 3]),
        ([1, 4, 9, 9, 2, 9], (), [0, 1, 4]),
        ([5, 9, 9, 9, 9, 1], (), [0, 5]),
        ([9, 2, 3, 9, 9, 9], (), [0]),
        ([1, 2, 3, 9, 9, 9], (2,), [0, 1]),
        ([1, 2, 3, 9, 9, 9], (1,), [0]),
    ],
)
def test_the_path_ends_at_another_choice_or_a_stop(choices, stop, path):
    assert TREE.path(choices, stop) == path
