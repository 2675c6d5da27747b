"""Regions of chunks: what they read, and where they end."""

from __future__ import annotations

import pytest
from support.models import exporters

import graphpass
from graphpass.analysis.equations.chunk_regions import find_chunks


@pytest.mark.parametrize(("family", "ranks"), [("qwen3_5_text", [3, 3, 4, 4, 4]), ("nemotron_h", [3, 4, 4, 4, 4])])
def test_a_region_ends_at_values_with_other_users(family, ranks):
    (chunk,) = find_chunks(graphpass.load(exporters("transformers-onnx", family)).graph)
    assert chunk.past.name == "past_key_values.layers.0.recurrent_states.0"
    assert chunk.present.name == "cache.layers.0.recurrent_states.0"
    assert sorted(len(pad.source().shape) for pad in chunk.entries) == ranks
