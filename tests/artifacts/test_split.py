"""Pairs of static models with one file of weights."""

from __future__ import annotations

import pytest

from graphpass.artifacts.split import find_pair, phases_of, preparation, stage_split
from graphpass.engine.split import Split
from graphpass.testing import run, tiny_model

SIZES = Split(8, 4, 16)


@pytest.mark.parametrize("suffix", [".onnx", ".xml"])
def test_a_pair_has_two_files(tmp_path, suffix):
    assert find_pair(tmp_path) is None
    (tmp_path / f"prefill{suffix}").touch()
    assert find_pair(tmp_path) is None
    (tmp_path / f"decode{suffix}").touch()
    assert find_pair(tmp_path) == (tmp_path / f"prefill{suffix}", tmp_path / f"decode{suffix}")


def test_each_model_has_its_sizes():
    phases = phases_of(SIZES)
    static = {name: steps[0] for name, steps in phases.items()}
    assert {name: (step.length, step.past) for name, step in static.items()} == {"prefill": (4, 8), "decode": (1, 16)}
    after = phases_of(Split(8, 4, 16, after="fuse-functions"))
    assert [step.name for step in after["decode"]] == ["make-static", "fuse-functions"]


def test_preparations_keep_inputs_and_make_variables_inputs():
    model = tiny_model("mistral", layers=1)
    for dialect in ("onnx", "openvino"):
        prepared = run(model, preparation(model, dialect, SIZES))
        assert prepared.dialect == dialect
        assert {port.name for port in prepared.inputs} == {port.name for port in model.inputs}
    stateful = tiny_model("llama", "stateful", layers=1)
    assert preparation(stateful, "openvino", SIZES)[0].name == "make-stateless"


def test_ir_has_two_names_of_one_weight_file(tmp_path):
    model = tiny_model("llama", "openvino", layers=1)
    prepared = run(model, preparation(model, "openvino", SIZES))
    models, written = stage_split(prepared, SIZES, tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "decode.bin",
        "decode.xml",
        "prefill.bin",
        "prefill.xml",
    ]
    assert (tmp_path / "prefill.bin").samefile(tmp_path / "decode.bin")
    assert {name: made.inputs[0].shape for name, made in models.items()} == {"prefill": (1, 4), "decode": (1, 1)}
    assert not written.shared


@pytest.mark.parametrize(("layers", "files"), [(1, 2), (2, 3)])
def test_large_weights_of_onnx_move_to_a_shared_file(tmp_path, layers, files):
    model = tiny_model("llama", layers=layers)
    stage_split(run(model, preparation(model, "onnx", SIZES)), SIZES, tmp_path)
    assert len(list(tmp_path.iterdir())) == files
