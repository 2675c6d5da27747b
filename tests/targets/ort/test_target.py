"""Target ort: ONNX in, ONNX out, the same tokens; with slots that can be moved, the same."""

from __future__ import annotations

from collections import Counter

import pytest
from support.commands import in_process
from support.models import export, exporters, fixtures, hybrids, reference
from support.reference_tokens import greedy_tokens

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.manager import PassManager
from graphpass.errors import UnsupportedError
from graphpass.io import load
from graphpass.runtime import open_session
from graphpass.targets import check_model
from graphpass.targets.ort.target import ORT
from graphpass.verify import compare

#: ONNX Runtime's GroupQueryAttention rotates heads of a multiple of 16 only; those of llama_12l have 8.
_REFUSED = {("llama_12l", "onnx-genai")}

#: Every decoder that was exported to ONNX with a cache, half precision apart.
EXPORTS = [
    (path.parts[-3], path.parts[-2])
    for path in sorted(fixtures().glob("*/onnx*/model.onnx"))
    if path.parts[-2] in {"onnx", "onnx-genai", "onnx-raw"} and path.parts[-3:-1] not in _REFUSED
]

QUICK = {("llama", "onnx"), ("lfm2", "onnx-genai"), ("mamba", "onnx-raw"), ("gemma3_text", "onnx")}


@pytest.mark.parametrize("cache", ["past", "reorder"])
@pytest.mark.parametrize(
    ("name", "variant"), [pytest.param(*one, marks=[] if one in QUICK else [pytest.mark.slow]) for one in EXPORTS]
)
def test_generates_the_reference_tokens(name, variant, cache):
    model = load(export(name, variant))
    made = PassManager(ORT(cache=cache).pipeline(model)).run(model).model
    ORT().require_contract(made)
    report = check_model(made, "ort")
    assert report.holds
    assert report.confirmation.outcome == "confirmed"
    expected, session = reference(name), open_session(made)
    tokens = greedy_tokens(session, session.prefill(expected["prompt_ids"]), len(expected["greedy_ids"]))
    assert tokens == expected["greedy_ids"]
    assert ("src_idx" in {port.name for port in made.inputs}) == (
        cache == "reorder" and analyze_caches(model).kind != "linear"
    )


@pytest.mark.parametrize("path", ["t5/onnx/decoder_with_past_model.onnx", "whisper/onnx/decoder_with_past_model.onnx"])
def test_decoders_of_encoders_keep_their_cross_caches(path):
    model = load(fixtures() / path)
    made = PassManager(ORT(cache="reorder").pipeline(model)).run(model).model
    assert check_model(made, "ort").confirmation.outcome == "confirmed"
    assert [(cache.name, cache.kind) for cache in analyze_caches(made).caches] == [
        (cache.name, cache.kind) for cache in analyze_caches(model).caches
    ]
    assert "past_len" in {port.name for port in made.inputs}


@pytest.mark.slow
def test_layers_of_a_hybrid_are_fused():
    model = load(hybrids() / "qwen3_next_dense" / "onnx-raw")
    made = PassManager(ORT(cache="reorder").pipeline(model)).run(model).model
    found = Counter(node.op for node in made.graph.nodes)
    assert [found[kind] for kind in ("LinearAttention", "CausalConvWithState", "GroupQueryAttention")] == [3, 3, 1]
    assert check_model(made, "ort").confirmation.outcome == "confirmed"
    assert "src_idx" in {port.name for port in made.inputs}
    assert compare(model, made, steps=4).passed


@pytest.mark.parametrize(("device", "splits"), [("cpu", False), ("cuda", False), ("webgpu", True)])
def test_packed_caches_are_split_where_no_kernel_stores_them(device, splits):
    names = [each.name for each in ORT(device=device).pipeline(load(exporters("ort-script", "gpt2")))]
    assert [name in names for name in ("lower-operators", "unpack")] == [splits, splits]


def test_convert_prints_the_pipeline(capfd, tmp_path):
    done = in_process(
        capfd, "convert", export("qwen3", "onnx"), "-o", tmp_path / "made", "--target", "ort{cache=reorder}"
    )
    assert (done.code, done.err) == (0, "")
    passes = "fuse-functions,fuse-group-query-attention{context=512},reshape-by-constants,join-projections"
    assert f"pipeline  {passes},insert-reorder{{form=onnx}}" in done.out
    assert "contract  holds; confirmed: opened on ONNX Runtime" in done.out
    assert "verified  same: " in done.out
    made = load(tmp_path / "made" / "model.onnx")
    assert isinstance(made, OnnxModel)
    assert {"src_idx", "dst_idx"} <= {port.name for port in made.inputs}
    assert (tmp_path / "made" / "config.json").is_file()


def test_a_model_of_the_builder_is_unchanged(capfd, tmp_path):
    done = in_process(capfd, "convert", export("llama", "onnx-genai"), "-o", tmp_path / "made", "--target", "ort")
    assert (done.code, done.err) == (0, "")
    assert load(tmp_path / "made").digest() == load(export("llama", "onnx-genai")).digest()


@pytest.mark.parametrize("variant", ["ov-stateful", "ov-stateless"])
def test_ir_is_refused(capfd, tmp_path, variant):
    with pytest.raises(UnsupportedError, match="GP366: target ort writes ONNX, but the model is OpenVINO IR"):
        ORT().pipeline(load(export("llama", variant)))
    done = in_process(capfd, "convert", export("llama", variant), "-o", tmp_path / "made", "--target", "ort")
    assert done.code == 4
    assert done.err.startswith("error: GP366")
    assert not (tmp_path / "made").exists()
