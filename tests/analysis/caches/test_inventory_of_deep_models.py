"""Forty layers are found, paired and numbered as two are."""

import pytest
from support.deep_models import deepened
from support.models import export

import graphpass
from graphpass.analysis.lengths.past_order import past_order
from graphpass.runtime import open_session


def test_layers_of_a_deep_model():
    model = deepened(graphpass.load(export("llama_12l", "onnx")), 40, weights="absent.data")
    caches = graphpass.analyze_caches(model).caches
    assert [(cache.layer, cache.role) for cache in caches] == [
        (n, role) for n in range(40) for role in ("key", "value")
    ]
    assert all(cache.index == cache.layer for cache in caches)
    assert all(cache.read.replace("past_key_values", "present") == cache.write for cache in caches)


@pytest.mark.slow
def test_a_deepened_model_is_a_model():
    """The repetition itself is sound: it runs, and further layers change what comes out."""
    source = graphpass.load(export("llama_12l", "onnx"))
    deep = deepened(source, 14)
    logits = [open_session(model).prefill([[1, 5, 9]]) for model in (source, deep)]
    assert logits[0].shape == logits[1].shape
    assert abs(logits[0] - logits[1]).max() > 1e-3


def test_the_order_of_positions_needs_no_weights():
    model = deepened(graphpass.load(export("llama_12l", "onnx")), 20, weights="absent.data")
    assert past_order(model) == "any"
