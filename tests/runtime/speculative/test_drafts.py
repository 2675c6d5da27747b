"""Drafts: continuations with several last tokens, and tokens after earlier occurrences."""

import numpy
import pytest

from graphpass.errors import UsageError
from graphpass.runtime.speculative.drafts import DraftModel, PromptLookup, continuations


def logits(*likeliest):
    found = numpy.zeros(10)
    for rank, token in enumerate(likeliest):
        found[token] = 10 - rank
    return found


def test_continuations_follow_the_likeliest_token():
    fed = []

    def feed(token):
        fed.append(token)
        return logits(token + 1, token + 3)

    assert continuations(logits(1, 2), feed, 1, 2) == [(1,), (2,)]
    assert fed == []
    assert continuations(logits(1, 2), feed, 3, 2) == [(1,), (2,), (1, 2), (1, 4), (1, 2, 3), (1, 2, 5)]
    assert fed == [1, 2]


def test_ties_are_in_order_of_the_tokens():
    assert continuations(numpy.zeros(4), None, 1, 3) == [(0,), (1,), (2,)]


@pytest.mark.parametrize("width", [1, 2, 5, 40, 64])
def test_the_likeliest_tokens_are_those_of_a_stable_sort(width):
    generator = numpy.random.default_rng(width)
    for _ in range(20):
        values = generator.integers(-4, 4, 40).astype(numpy.float32)
        expected = numpy.argsort(-values, kind="stable")[:width]
        assert continuations(values, None, 1, width) == [(token,) for token in expected]


@pytest.mark.parametrize(
    ("history", "options", "paths"),
    [
        ([1, 5, 9, 14, 1, 5], {"length": 2}, [(9, 14)]),
        ([1, 2, 3, 9, 2, 3, 8, 1, 2, 3], {}, [(9, 2, 3, 8)]),
        ([1, 2, 3, 9, 2, 3, 8, 1, 2, 3], {"ngram": 2}, [(8, 1, 2, 3)]),
        ([1, 2, 3, 9, 2, 3, 8, 1, 2, 3], {"ngram": 2, "width": 5, "length": 1}, [(8,), (9,)]),
        ([7, 7, 7], {"length": 4}, [(7,)]),
        ([1, 2, 3], {}, []),
        ([1], {}, []),
        ([], {}, []),
    ],
)
def test_the_longest_and_latest_occurrence_is_continued(history, options, paths):
    assert PromptLookup(**options).propose(history) == paths


@pytest.mark.parametrize("setting", ["length", "ngram", "width"])
def test_settings_must_be_positive(setting):
    with pytest.raises(UsageError, match=f"GP263: {setting} must be at least 1"):
        PromptLookup(**{setting: 0})
    if setting != "ngram":
        with pytest.raises(UsageError, match="GP263"):
            DraftModel(None, **{setting: 0})
