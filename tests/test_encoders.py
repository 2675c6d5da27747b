"""Encoders, embedders and rerankers: fused, proven, and loaded by openvino.genai."""

import json
import shutil

import numpy
import openvino_genai
import pytest
from support.commands import in_process
from support.models import export, exporters

from graphpass.analysis.caches.encoders import is_encoder, is_pooled
from graphpass.io import load
from graphpass.runtime import open_session

NAMES = ("bert", "bert-reranker", "modernbert", "qwen3")
FORMS = {"cpu": "ScaledDotProductAttention", "ort": "MultiHeadAttention"}


def converted(name, target, folder, capfd):
    done = in_process(capfd, "convert", exporters("encoders", name), "-o", folder, "--target", target)
    assert done.code == 0, done.err
    return done.out


@pytest.mark.parametrize("target", FORMS)
@pytest.mark.parametrize("name", NAMES)
def test_attention_is_fused_and_proven(name, target, tmp_path, capfd):
    out = converted(name, target, tmp_path / "out", capfd)
    assert f"no caches, 2 fused {FORMS[target]}" in out
    assert "verified  same" in out
    assert "inconsistent" not in out
    expected = json.loads((exporters("encoders", name) / "reference.json").read_text())
    found = open_session(load(tmp_path / "out")).prefill([expected["prompt_ids"]]).flatten()[-8:]
    numpy.testing.assert_allclose(found, expected["output"], atol=1e-4)


def test_attention_without_a_scale_is_fused(tmp_path, capfd):
    """T5's encoder has none, and ONNX Runtime takes no whole number for one."""
    done = in_process(capfd, "convert", export("t5", "onnx") / "encoder_model.onnx", "-o", tmp_path, "--target", "ort")
    assert done.code == 0, done.err
    assert "2 fused MultiHeadAttention" in done.out
    assert "verified  same" in done.out


def test_rows_of_a_padded_batch_equal_rows_alone(tmp_path, capfd):
    converted("bert-reranker", "cpu", tmp_path / "out", capfd)
    session = open_session(load(tmp_path / "out"))
    rows = [[5, 9, 14, 20], [7, 3]]
    alone = [session.prefill([row])[0, 0] for row in rows]
    mask = [[1, 1, 1, 1], [1, 1, 0, 0]]
    together = session.prefill([rows[0], [*rows[1], 0, 0]], attention_mask=mask)
    numpy.testing.assert_allclose(together[:, 0], alone, atol=1e-5)


@pytest.mark.parametrize("target", ["npu", "paged", "ort-genai"])
def test_runtimes_with_caches_refuse_encoders(target, tmp_path, capfd):
    done = in_process(capfd, "convert", exporters("encoders", "bert"), "-o", tmp_path / "out", "--target", target)
    assert done.code == 4
    assert "GP338" in done.err
    assert "with_past" not in done.err


def test_encoders_are_recognized():
    assert all(load(exporters("encoders", name)).analysis(is_encoder) for name in NAMES)
    assert [name for name in NAMES if is_pooled(load(exporters("encoders", name)))] == ["bert-reranker"]
    assert not load(export("llama", "onnx-nocache")).analysis(is_encoder)
    assert not load(export("llama", "onnx")).analysis(is_encoder)


def test_inspect_names_encoders(capfd):
    out = in_process(capfd, "inspect", exporters("encoders", "bert-reranker")).out
    assert "ONNX, encoder, pooled" in out
    assert "fuse-group-query-attention" not in out


@pytest.mark.parametrize("name", ["bert", "qwen3"])
def test_embedding_pipelines_load_results(name, tmp_path, capfd):
    converted(name, "cpu", tmp_path / "out", capfd)
    for file in export("llama", "ov-stateful").glob("openvino_*tokenizer.*"):
        shutil.copy(file, tmp_path / "out")
    text = "hello world this is"
    kind = openvino_genai.TextEmbeddingPipeline
    options = {"pooling_type": kind.PoolingType.MEAN, "normalize": True, "INFERENCE_PRECISION_HINT": "f32"}
    (found,) = kind(str(tmp_path / "out"), "CPU", **options).embed_documents([text])
    ids = openvino_genai.Tokenizer(str(tmp_path / "out")).encode(text).input_ids.data
    expected = open_session(load(exporters("encoders", name))).prefill(ids)[0].mean(axis=0)
    numpy.testing.assert_allclose(found, expected / numpy.linalg.norm(expected), atol=1e-5)


def test_there_are_no_slots_to_move(tmp_path, capfd):
    arguments = [exporters("encoders", "bert"), "-o", tmp_path / "out", "--target", "cpu{cache=reorder}"]
    done = in_process(capfd, "convert", *arguments)
    assert (done.code, "GP226" in done.err) == (2, True)
