"""The pass `unsqueeze-logits`."""

from __future__ import annotations

import json

import pytest
from support.commands import in_process
from support.last_token import FORMS, of_last_token
from support.models import fixtures
from support.reference_tokens import greedy_tokens

from graphpass.engine.passes import Skipped
from graphpass.errors import UnsupportedError
from graphpass.io import load, save
from graphpass.passes.convert.unsqueeze_logits import UnsqueezeLogits
from graphpass.runtime import open_session
from graphpass.testing import run, tiny_model


@pytest.mark.parametrize("dialect", ["onnx", "openvino"])
@pytest.mark.parametrize("form", FORMS)
def test_logits_of_rows_get_an_axis(form, dialect):
    model = of_last_token(tiny_model("llama"), form)
    model = run(model, "to-openvino") if dialect == "openvino" else model
    result = UnsqueezeLogits().run(after := model.clone())
    if form == "kept":
        assert isinstance(result, Skipped)
        return
    with pytest.raises(UnsupportedError, match="GP324"):
        open_session(model).prefill([[1, 5, 9]])
    whole = open_session(tiny_model("llama")).prefill([[1, 5, 9]])
    found = open_session(after).prefill([[1, 5, 9]])
    assert found.shape == (1, 1, whole.shape[2])
    assert abs(found[:, 0] - whole[:, -1]).max() < 1e-5
    assert isinstance(UnsqueezeLogits().run(after), Skipped)


def test_scores_of_encoders_and_logits_of_joined_rows_stay():
    assert isinstance(UnsqueezeLogits().run(tiny_model("llama")), Skipped)
    model = tiny_model("llama")
    rewriter, logits = model.rewriter(), model.graph.writes["logits"]
    joined = rewriter.op("Reshape", logits.source(), [-1, 256], name="joined")
    rewriter.redirect(logits, 0, joined)
    rewriter.resize_port(logits, [-1, None, None])
    rewriter.finish()
    assert isinstance(UnsqueezeLogits().run(model), Skipped)


@pytest.mark.parametrize("target", ["cpu", "ort"])
def test_conversions_compare_with_the_axis(target, tmp_path, capfd):
    source = fixtures() / "llama" / "onnx"
    save(of_last_token(load(source), "gathered"), tmp_path / "model.onnx")
    done = in_process(capfd, "convert", tmp_path / "model.onnx", "-o", tmp_path / "out", "--target", target)
    assert (done.code, "unsqueeze-logits" in done.out) == (0, True), done.err
    expected = json.loads((source.parent / "reference.json").read_text())
    session = open_session(load(tmp_path / "out"))
    found = greedy_tokens(session, session.prefill([expected["prompt_ids"]]), len(expected["greedy_ids"]))
    assert found == expected["greedy_ids"]
