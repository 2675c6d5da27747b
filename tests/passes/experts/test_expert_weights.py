"""Weights of experts in the layout of MoE: written once, expert by expert."""

from __future__ import annotations

import tracemalloc

import numpy
import onnx
import pytest
from support.expert_graphs import CHOSEN, EXPERTS, HIDDEN, INNER, experts
from support.fused_experts import fused
from support.running_experts import run, tokens

import graphpass


def test_weights_are_written_once_into_a_file(tmp_path):
    model = experts("separate", bias=True)
    wanted = run(model, tokens())
    onnx.save(model.proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=100)
    before = (tmp_path / "m.data").read_bytes()
    after, done = fused(graphpass.load(tmp_path / "m.onnx"))
    out = tmp_path / "out"
    graphpass.save(after, out / "m.onnx")
    assert (tmp_path / "m.data").read_bytes() == before
    # The router's weights are few, so that the old file is not used.
    (file,) = (one for one in out.iterdir() if one.suffix == ".data")
    assert file.name.startswith("experts-")
    proto = onnx.load(out / "m.onnx", load_external_data=False)
    moe = next(node for node in proto.graph.node if node.op_type == "MoE")
    held = {one.name: one for one in proto.graph.initializer}
    shapes = {name: tuple(held[name].dims) for name in moe.input[2:]}
    assert list(shapes.values()) == [
        (EXPERTS, 2 * INNER, HIDDEN),
        (EXPERTS, 2 * INNER),
        (EXPERTS, HIDDEN, INNER),
        (EXPERTS, HIDDEN),
    ]
    assert moe.attribute  # its own, not the defaults
    assert {one.name: one.i for one in moe.attribute if one.name == "k"} == {"k": CHOSEN}
    assert "MB of weights are rewritten in the layout of the operator" in done.notes[0]
    numpy.testing.assert_allclose(run(out / "m.onnx", tokens()), wanted, rtol=1e-4, atol=1e-4)
    missing = graphpass.load(tmp_path / "m.onnx")
    (tmp_path / "m.data").unlink()
    with pytest.raises(graphpass.errors.ReadError, match=r"m\.data"):
        fused(missing)


def test_no_more_than_a_few_experts_are_in_memory(tmp_path):
    model = experts("dense", columns="halves", count=64, inner=4096)
    onnx.save(model.proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data")
    loaded = graphpass.load(tmp_path / "m.onnx")
    tracemalloc.start()
    try:
        _, done = fused(loaded)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert done.statistics["layers fused"] == 1
    assert peak < (tmp_path / "m.data").stat().st_size / 5
