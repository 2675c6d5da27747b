"""Trials on onnxruntime-genai."""

from __future__ import annotations

import json

import pytest
from support.loaded import converted, exported


@pytest.mark.parametrize("refusing", [("1",), ("1", None)])
def test_a_refusal_without_repacked_weights_is_tried_again(monkeypatch, refusing):
    from graphpass.targets.ort import genai_trial

    generate, tried = genai_trial._generate, []

    def generate_or_refuse(folder, *inputs):
        config = json.loads((folder / "genai_config.json").read_text())
        tried.append(config["model"]["decoder"].get("session_options", {}).get("session.disable_prepacking"))
        if tried[-1] in refusing:
            raise RuntimeError("no kernel")
        generate(folder, *inputs)

    monkeypatch.setattr(genai_trial, "_generate", generate_or_refuse)
    observation = genai_trial.observe(converted(exported("llama/onnx"), "ort-genai").model, None)
    assert tried == ["1", None]
    assert observation.refused == ("no kernel" if None in refusing else None)
