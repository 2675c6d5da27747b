"""Forty layers are found, paired and numbered as two are."""

import pytest
from support.scale import scaled

import graphpass
from graphpass.analysis.lengths.past_order import past_order
from graphpass.runtime import open_session


def without_weights(folder, layers):
    """A llama of a number of layers, whose data file is gone."""
    model = graphpass.load(scaled("llama", "tiny", folder, layers=layers))
    (folder / "model.onnx.data").unlink()
    return model


def test_layers_of_a_deep_model_are_paired_and_numbered(tmp_path):
    caches = graphpass.analyze_caches(without_weights(tmp_path, 40)).caches
    assert [(cache.layer, cache.role) for cache in caches] == [
        (n, role) for n in range(40) for role in ("key", "value")
    ]
    assert all(cache.index == cache.layer for cache in caches)
    assert all(cache.read.replace("past_key_values", "present") == cache.write for cache in caches)


@pytest.mark.slow
def test_further_layers_change_the_logits(tmp_path):
    """The repetition of layers itself is sound: the model runs, and each layer counts."""
    paths = [scaled("llama", "tiny", tmp_path / str(layers), layers=layers, seed=0) for layers in (12, 14)]
    shallow, deep = (open_session(graphpass.load(path)).prefill([[1, 5, 9]]) for path in paths)
    assert shallow.shape == deep.shape
    assert abs(shallow - deep).max() > 1e-3


def test_the_order_of_positions_needs_no_weights(tmp_path):
    assert past_order(without_weights(tmp_path, 20)) == "any"
