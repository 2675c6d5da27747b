"""Weights in data files of limited size."""

from __future__ import annotations

import onnx
import pytest
from support.loaded import exported, run_once

from graphpass.dialects.onnx import shards
from graphpass.errors import UnsupportedError
from graphpass.io import load
from graphpass.testing import parse_model


def test_weights_over_the_limit_of_protobuf_are_sharded(tmp_path):
    model = run_once(exported("llama/onnx"), "reshape-by-constants").model
    assert shards.count_shards(model) == 0
    assert shards.count_shards(model, limit=2**10) == 1
    shards.stage_sharded(model, tmp_path, "model.onnx", limit=2**10)
    assert load(tmp_path).digest() == model.digest()


def small(folder, external):
    proto = parse_model(
        "%x = Parameter : f32[n, 64]\n%a = Constant : f32[64, 64]\n%b = Constant : f32[64, 64]\n%c = MatMul(%x, %a)\n"
        "%d = MatMul(%c, %b)\nResult(%d) {name=y}"
    ).proto
    onnx.save(proto, folder / "m.onnx", save_as_external_data=external, location="m.data", size_threshold=0)
    return load(folder / "m.onnx")


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize(("limit", "count"), [(2**15, 1), (2**14, 2)])
def test_files_have_at_most_their_limit(tmp_path, monkeypatch, external, limit, count):
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    model = small(tmp_path / "in", external)
    monkeypatch.setattr(shards, "SHARD", limit)
    assert shards.count_shards(model, limit=2**10) == count
    shards.stage_sharded(model, tmp_path / "out", "m.onnx", limit=2**10)
    names = shards.shard_names("m.onnx", count)
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"m.onnx", *names}
    assert all((tmp_path / "out" / name).stat().st_size <= limit for name in names)
    assert load(tmp_path / "out" / "m.onnx").digest() == model.digest()


def test_names_are_those_of_transformers_js():
    assert shards.shard_names("m.onnx", 3) == ["m.onnx_data", "m.onnx_data_1", "m.onnx_data_2"]


def test_a_weight_larger_than_a_file_is_refused(tmp_path, monkeypatch):
    model = small(tmp_path, external=True)
    monkeypatch.setattr(shards, "SHARD", 2**13)
    with pytest.raises(UnsupportedError, match="weight a has 16,384 bytes") as error:
        shards.count_shards(model)
    assert error.value.id == "GP399"
