"""References that compute long prompts wrongly at once, and candidates that do."""

from __future__ import annotations

import functools

import numpy as np
from support.models import exporters

import graphpass
from graphpass.runtime import open_session
from graphpass.verify import compare
from graphpass.verify.readings import InParts


@functools.cache
def models():
    """An export that holds one chunk of 64 tokens, and the same for any number."""
    source = graphpass.load(exporters("transformers-onnx", "qwen3_5_text"))
    return source, graphpass.PassManager(graphpass.parse("fuse-linear-attention")).run(source).model


def test_the_reference_is_fed_in_parts():
    found = compare(*models(), steps=2)
    assert found.passed, found.summary()
    words = "the reference is inconsistent, and was fed 8 tokens at a time"
    assert [skipped.partition(" at once: ")[2] for skipped in found.skipped if words in skipped]


def test_a_candidate_wrong_from_the_first_token_is_found():
    found = compare(*reversed(models()), steps=2)
    assert not found.passed
    assert "around" in found.sequences[-1].description


def test_results_in_parts_equal_the_whole():
    ids = np.arange(3, 40).reshape(1, -1)
    one, other = (open_session(models()[1]) for _ in range(2))
    whole, parts = one.forward(ids, np.ones_like(ids)), InParts(other).forward(ids, np.ones_like(ids))
    assert parts.keys() == whole.keys()
    for name, array in whole.items():
        np.testing.assert_allclose(parts[name], array, atol=1e-4)
