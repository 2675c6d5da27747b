"""``--cache``: saying what a cache is that the graph does not tell."""

from __future__ import annotations

import json
from pathlib import Path

import numpy
import onnx
import openvino
from support.commands import in_process
from support.unknown_caches import SIZE, VOCABULARY, decoder_with_unknown_cache

import graphpass
from graphpass.dialects.onnx.model import OnnxModel


def saved(folder: Path, model: OnnxModel) -> Path:
    """``model`` as a file."""
    folder.mkdir(exist_ok=True)
    onnx.save(model.proto, folder / "model.onnx")
    return folder / "model.onnx"


def expected_logits(ids: numpy.ndarray, model: OnnxModel) -> numpy.ndarray:
    """What the last logits of ``memory(names=...)`` with two pasts must be after ``ids``, an int64 [length]."""
    table, head = (
        onnx.numpy_helper.to_array(tensor)
        for tensor in model.proto.graph.initializer
        if list(tensor.dims) in ([VOCABULARY, SIZE], [SIZE, VOCABULARY])
    )
    return (table[ids[-1]] + 2 * table[ids].mean(axis=0)) @ head


def test_convert_refuses_unknown_caches(capfd, tmp_path):
    source = saved(tmp_path / "in", decoder_with_unknown_cache())
    done = in_process(capfd, "convert", source, "-o", tmp_path / "out", "--target", "cpu")
    assert done.code == 4
    assert done.err.startswith("error: GP315: ")
    assert "cache past is of unknown kind: appended along axis 1" in done.err
    assert "--cache past=kv,sequence=1" in done.err
    assert not (tmp_path / "out").exists()


F32 = {"INFERENCE_PRECISION_HINT": "f32"}
TWO = ("past_0", "past_1")
SAID = [word for name in TWO for word in ("--cache", f"{name}=kv,sequence=1")]


def test_a_declared_cache_is_converted(capfd, tmp_path):
    model = decoder_with_unknown_cache(names=TWO)
    source = saved(tmp_path / "in", model)
    out = tmp_path / "out"
    done = in_process(capfd, "convert", source, "-o", out, "--target", "cpu", *SAID)
    assert (done.code, done.err) == (0, "")
    assert "verified  " in done.out

    found = json.loads(in_process(capfd, "inspect", out, "--format", "json").out)
    assert [(cache["name"], cache["kind"]) for cache in found["caches"]] == [
        ("past_0present_0", "kv"),
        ("past_1present_1", "kv"),
    ]

    request = openvino.Core().compile_model(out / "openvino_model.xml", "CPU", F32).create_infer_request()
    ids = numpy.array([3, 1, 4, 1, 5, 2])
    for step in (ids[:3], ids[3:4], ids[4:5], ids[5:]):
        request.infer({"input_ids": step[None], "beam_idx": numpy.zeros(1, numpy.int32)})
    logits = request.get_tensor("logits").data[0, -1]
    assert numpy.allclose(logits, expected_logits(ids, model), atol=1e-5)


def test_declarations_survive_stateful_and_back(capfd, tmp_path):
    source = saved(tmp_path / "in", decoder_with_unknown_cache(names=TWO))
    stateful, stateless = tmp_path / "stateful.xml", tmp_path / "stateless.xml"
    pipeline = "to-openvino,make-stateful{beam-index=true}"
    assert in_process(capfd, "run", source, "-o", stateful, "-p", pipeline, *SAID).code == 0
    assert in_process(capfd, "run", stateful, "-o", stateless, "-p", "make-stateless", "--verify").code == 0
    caches = graphpass.analyze_caches(graphpass.load(stateless)).caches
    assert [(cache.name, cache.kind) for cache in caches] == [("past_0", "kv"), ("past_1", "kv")]


def test_a_declaration_against_the_graph_is_refused(capfd, tmp_path):
    source = saved(tmp_path / "in", decoder_with_unknown_cache())
    done = in_process(capfd, "inspect", source, "--cache", "past=linear")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: GP219: cache past is declared as linear, but it grows along axis 1")


def test_an_unreadable_declaration_is_refused(capfd, tmp_path):
    source = saved(tmp_path / "in", decoder_with_unknown_cache())
    done = in_process(capfd, "inspect", source, "--cache", "past=kv")
    assert done.code == 2
    assert done.err.startswith("error: GP218: 'past=kv' is not a declaration of a cache")
