"""The pass `all-logits`."""

from __future__ import annotations

import pytest
from support.commands import in_process
from support.last_token import FORMS, of_last_token
from support.models import fixtures

from graphpass.engine.passes import Skipped
from graphpass.io import load, save
from graphpass.passes.shapes.all_logits import AllLogits
from graphpass.runtime import open_session
from graphpass.testing import run, tiny_model

TOKENS = [[1, 5, 9, 14]]


@pytest.mark.parametrize("dialect", ["onnx", "openvino"])
@pytest.mark.parametrize("form", FORMS)
def test_logits_of_all_tokens_are_computed(form, dialect):
    model = of_last_token(tiny_model("llama"), form)
    model = run(model, "to-openvino" if dialect == "openvino" else "drop-identities")
    after = run(model, "unsqueeze-logits,all-logits")
    assert next(port.shape for port in after.outputs if port.name == "logits")[1] != 1
    expected = open_session(tiny_model("llama")).prefill(TOKENS)
    assert abs(open_session(after).prefill(TOKENS) - expected).max() < 1e-5
    assert isinstance(AllLogits().run(after.clone()), Skipped)


def test_models_without_a_selection_stay():
    assert isinstance(AllLogits().run(tiny_model("llama")), Skipped)


def test_other_selections_stay():
    """last-logits selects the last token that the mask counts."""
    assert isinstance(AllLogits().run(run(tiny_model("llama"), "last-logits")), Skipped)


def test_paged_attention_gets_all_logits(tmp_path, capfd):
    save(of_last_token(load(fixtures() / "llama" / "onnx"), "kept"), tmp_path / "model.onnx")
    done = in_process(capfd, "convert", tmp_path / "model.onnx", "-o", tmp_path / "out", "--target", "paged")
    assert (done.code, "all-logits" in done.out) == (0, True), done.err
