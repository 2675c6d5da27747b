"""grow-caches: caches that TensorScatter writes grow, and padding can be hidden."""

import numpy
import pytest
from support.models import exporters
from support.pipelines import run_passes

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.engine.passes import Skipped
from graphpass.io import load
from graphpass.passes.caches.grow_caches import GrowCaches
from graphpass.runtime import open_session
from graphpass.verify import compare


def test_caches_grow():
    model = load(exporters("mobius-static", "llama"))
    after, result = run_passes(model, GrowCaches())
    assert result.statistics == {"caches grown": 4}
    assert [port.name for port in after.inputs if "cache" not in port.name] == [
        "input_ids",
        "position_ids",
        "attention_mask",
    ]
    assert {cache.shape for cache in analyze_caches(after).caches} == {("batch", 2, "past_length", 16)}
    assert compare(model, after, steps=4).passed


def test_padding_is_hidden():
    session = open_session(run_passes(load(exporters("mobius-static", "llama")), GrowCaches())[0])
    padded = session.prefill([[0, 0, 5, 9, 14], [1, 5, 9, 14, 20]], [[0, 0, 1, 1, 1], [1] * 5])[0, -1]
    numpy.testing.assert_allclose(padded, session.prefill([5, 9, 14])[0, -1], atol=1e-4)


@pytest.mark.parametrize("name", ["mobius", "transformers-onnx"])
def test_growing_caches_stay(name):
    assert isinstance(run_passes(load(exporters(name, "llama")), GrowCaches())[1], Skipped)
