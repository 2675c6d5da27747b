"""graphpass.convert: what it writes and returns."""

import json

from support.models import export

import graphpass


def test_converted_models_verify(tmp_path):
    model = export("llama", "onnx")
    proof = graphpass.Proof(steps=2)
    outcome = graphpass.convert(model, tmp_path / "out", "cpu", proof=proof, html=tmp_path / "page.html")
    assert outcome.comparison.passed
    assert outcome.contract.holds
    assert "verified  same" in str(outcome)
    assert json.loads(json.dumps(outcome.to_json()))["target"] == "cpu"
    assert "<html" in (tmp_path / "page.html").read_text("utf-8")
    assert graphpass.convert(model, tmp_path / "out", "cpu", proof=proof, if_changed=True).up_to_date
    comparison = graphpass.verify(model, tmp_path / "out", steps=2)
    assert comparison.passed
    assert str(comparison).startswith("same: ")
