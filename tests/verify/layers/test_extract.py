"""Models of single parts: their inputs, caches and outputs."""

import numpy
import pytest

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.runtime import open_session
from graphpass.testing import run, tiny_model
from graphpass.verify.layers.extract import extract
from graphpass.verify.parts import plan

TOKENS = [[5, 6, 7]]


@pytest.fixture(scope="module")
def pairs():
    """Parts of a model and of its conversion, each as a model of its own."""
    model = tiny_model("llama")
    parts = plan(model, run(model, "to-openvino,make-stateful")).parts
    return [tuple(map(extract, pair)) for pair in parts]


def test_layers_keep_their_own_caches(pairs):
    names = [sorted(cache.name for cache in analyze_caches(left).caches) for left, _ in pairs]
    assert [each for each in names if each] == [["past.0.key", "past.0.value"], ["past.1.key", "past.1.value"]]


def test_contributions_have_a_mean_square_of_1_and_their_scale(pairs):
    for model, _ in pairs[:-1]:
        out = open_session(model).prefill(TOKENS)
        change, scale = out[..., :32], out[..., 32:]
        assert scale.shape == (1, 3, 4)
        numpy.testing.assert_allclose((change**2).mean(-1), 1, rtol=1e-3)
        # Cosine and sine of two angles.
        numpy.testing.assert_allclose((scale.reshape(1, 3, 2, 2) ** 2).sum(-1), 1, rtol=1e-5)


def test_the_last_part_has_the_logits(pairs):
    assert open_session(pairs[-1][0]).prefill(TOKENS).shape == (1, 3, 64)


def test_equal_parts_compute_the_same(pairs):
    assert len(pairs) > 3
    for pair in pairs:
        sessions = [open_session(model) for model in pair]
        numpy.testing.assert_allclose(*(session.prefill(TOKENS) for session in sessions), atol=1e-4)
        numpy.testing.assert_allclose(*(session.step([[9]]) for session in sessions), atol=1e-4)
