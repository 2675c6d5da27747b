"""Convert models of real shapes and many layers, whose weights are holes."""

import pytest
from support.scale import scaled, scaled_ir

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.dialects import weights
from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse_target
from graphpass.io import load, save
from graphpass.reports.diff import diff_models
from graphpass.verify import compare

#: Templates with the numbers of their kv and linear caches in ten layers.
FAMILIES = {
    "llama": (20, 0),
    "llama_f16": (20, 0),
    "mistral": (20, 0),
    "gemma3": (20, 0),
    "qwen3_moe": (20, 0),
    "lfm2": (10, 5),
}


@pytest.mark.parametrize("name", ["llama", *(pytest.param(name, marks=pytest.mark.slow) for name in [*FAMILIES][1:])])
def test_a_deep_model_converts_and_computes_the_same(name, tmp_path):
    model = load(scaled(name, "tiny", tmp_path, layers=10, seed=0))
    inventory = analyze_caches(model)
    assert (len(inventory.of_kind("kv")), len(inventory.of_kind("linear"))) == FAMILIES[name]
    result = PassManager(parse_target("cpu").pipeline(model)).run(model).model
    assert compare(model, result, steps=3).passed


def test_140_gigabytes_take_no_room_and_are_not_read(tmp_path, monkeypatch):
    """Convert the shape of Llama-3-70B, four layers of it, and compare the result: by places, not by bytes."""
    path = scaled("llama_f16", "70B", tmp_path / "in", layers=4)
    data = path.with_name("model.onnx.data").stat()
    assert data.st_size > 10 * 10**9
    assert data.st_blocks * 512 < 10**6
    model = load(path)
    result = PassManager(parse_target("cpu").pipeline(model)).run(model).model
    save(result, tmp_path / "out" / "m.xml", weights="share")
    digested = []
    monkeypatch.setattr(weights, "digests_of", lambda places: {place: digested.append(place) or "" for place in places})
    found = diff_models(load(path), load(tmp_path / "out" / "m.xml"))
    assert sum(place.length for place in digested) < 10**6
    assert found.weights.unchanged_bytes > 10 * 10**9


def test_an_ir_shares_the_weights_of_its_onnx_model(tmp_path):
    path = scaled_ir("llama", "0.5B", tmp_path, layers=4)
    assert path.with_suffix(".bin").stat().st_nlink == 2
    assert len(analyze_caches(load(path)).of_kind("kv")) == 8
