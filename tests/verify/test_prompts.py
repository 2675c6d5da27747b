"""Prompts: rows of token ids, with padding where a model supports it."""

import numpy
import pytest
from hypothesis import given, strategies as st

from graphpass.errors import UsageError
from graphpass.verify.prompts import Vocabulary, padded, padded_inside, pictured, rectangular

ROWS = [(1, 2, 3), (4,)]


def test_rows_of_one_length_have_no_padding():
    prompt = rectangular("prompt", [(1, 2), (3, 4)])
    assert prompt.description == "prompt of 2 tokens"
    assert prompt.ids.tolist() == [[1, 2], [3, 4]]
    assert prompt.mask.tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize(("side", "ids", "mask"), [("left", [0, 0, 4], [0, 0, 1]), ("right", [4, 0, 0], [1, 0, 0])])
def test_shorter_rows_are_padded_on_one_side(side, ids, mask):
    prompt = padded("prompts", ROWS, side)
    assert prompt.ids.tolist() == [[1, 2, 3], ids]
    assert prompt.mask.tolist() == [[1, 1, 1], mask]
    assert prompt.description == f"prompts of 3 and 1 tokens, padded on the {side}"


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=6).map(tuple), min_size=1, max_size=4))
def test_rows_are_recovered_without_their_padding(rows):
    for prompt in (padded("", rows), padded("", rows, "right"), padded_inside("", rows)):
        assert prompt.rows == tuple(rows)
        assert prompt.ids.shape == prompt.mask.shape == (len(rows), max(map(len, rows)))


def test_padding_after_the_first_token_counts_in_positions():
    prompt = padded_inside("prompts", ROWS)
    assert prompt.ids.tolist() == [[1, 2, 3], [4, 0, 0]]
    assert prompt.mask.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert prompt.counts_padding
    assert not padded("prompts", ROWS).counts_padding


@pytest.mark.parametrize("axes", [3, 4])
def test_patches_of_an_image_have_positions_of_their_own(axes):
    prompt = pictured("prompt", [tuple(range(8))] * 2, axes)
    time, height, width = ([0, 1, *patches, 4, 5] for patches in ([2, 2, 2, 2], [2, 2, 3, 3], [2, 3, 2, 3]))
    assert prompt.positions.shape == (axes, 2, 8)
    assert prompt.positions[:, 0].tolist() == [time, height, width, width][:axes]
    assert numpy.array_equal(prompt.positions[:, 0], prompt.positions[:, 1])


def test_vocabularies_repeat_their_prompts():
    first, second = Vocabulary(50), Vocabulary(50)
    prompts = [first.prompt(length) for length in (5, 5, 200)]
    assert prompts == [second.prompt(length) for length in (5, 5, 200)]
    assert prompts[0] != prompts[1]
    assert {0, 49} <= set(prompts[2]) <= set(range(50))


@pytest.mark.parametrize(("ids", "words"), [((), "at least one"), ((3, 50), "prompt id 50"), ((-1,), "prompt id -1")])
def test_ids_outside_of_the_vocabulary_are_refused(ids, words):
    with pytest.raises(UsageError, match=words) as error:
        Vocabulary(50).check(ids)
    assert error.value.id == "GP250"
    assert Vocabulary(50).check((0, 49)) == (0, 49)
