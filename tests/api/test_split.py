"""graphpass.split writes two models."""

from support.models import export

import graphpass


def test_split_writes_two_models(tmp_path):
    outcome = graphpass.split(
        export("llama", "ov-stateless"), tmp_path / "out", prompt=8, chunk=4, capacity=16, verify=False
    )
    assert {file.name for file in outcome.files} >= {"prefill.xml", "decode.xml"}
    assert outcome.to_json()["chunk"] == 4
    assert str(tmp_path / "out") in str(outcome)
