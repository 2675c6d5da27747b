"""Caches and logits on a few prompts, and the change of logits by rounding."""

from dataclasses import replace

import numpy
import pytest

from graphpass.testing import tiny_model
from graphpass.verify.cache_samples import loss_in_words, opened_on_ids, replayed, sample_caches, usual_prompts


@pytest.fixture(scope="module")
def sample():
    session = opened_on_ids(tiny_model("llama", layers=1))
    return session, sample_caches(session, [(5, 9, 14), (1, 2)])


def test_prompts_are_followed_by_greedy_steps(sample):
    _, made = sample
    assert made.prompts == ((5, 9, 14), (1, 2))
    for prompt, chosen, logits in zip(made.prompts, made.chosen, made.logits, strict=True):
        assert logits.shape == (len(prompt) + 16, 64)
        assert chosen == tuple(logits[len(prompt) - 1 : -1].argmax(-1))


def test_contents_of_all_prompts_are_joined(sample):
    _, made = sample
    assert {name: content.shape for name, content in made.contents.items()} == {
        "past.0.key": (2, 3 + 2 + 2 * 16, 8),
        "past.0.value": (2, 3 + 2 + 2 * 16, 8),
    }


def test_another_session_runs_the_same_tokens(sample):
    _, made = sample
    other = opened_on_ids(tiny_model("llama", "stateful", layers=1))
    for actual, expected in zip(replayed(other, made), made.logits, strict=True):
        numpy.testing.assert_allclose(actual, expected, atol=1e-4)


def test_losses_are_measured_over_all_prompts(sample):
    _, made = sample
    same = loss_in_words(made, made.logits, 8)
    assert same.startswith("8 bits change logits by at most 0, with a standard deviation of ")
    assert same.endswith("the most likely token is unchanged at 37 of 37 positions")
    flipped = (-made.logits[0], made.logits[1])
    assert "unchanged at 18 of 37 positions" in loss_in_words(made, flipped, 4)
    assert loss_in_words(replace(made, logits=flipped), flipped, 4).startswith("4 bits change logits by at most 0")


def test_the_longest_prompt_fits_into_small_models(sample):
    session, _ = sample
    prompts = usual_prompts(session)
    assert [len(prompt) for prompt in prompts] == [5, 11, 96]
    assert all(0 <= token < 64 for prompt in prompts for token in prompt)
