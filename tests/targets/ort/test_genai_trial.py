"""Trials on onnxruntime-genai."""

from __future__ import annotations

import json
import shutil

import numpy as np
import onnx
import pytest
from support.loaded import converted, exported

from graphpass import load, save


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


def test_bytes_in_a_refusal_are_escaped(capfd, tmp_path):
    from graphpass.targets.ort import genai_trial

    reference = exported("llama/onnx")
    path = tmp_path / "model.onnx"
    save(converted(reference, "ort-genai").model, path)
    shutil.copy(reference.path.parent / "config.json", tmp_path)
    proto = onnx.load(path)
    # ONNX Runtime quotes the unknown mode, which is not UTF-8.
    resize = onnx.helper.make_node("Resize", ["logits", "", "scales"], ["resized"], mode=b"\xff")
    proto.graph.node.append(resize)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(3, np.float32), "scales"))
    proto.graph.output.add(name="resized")
    onnx.save(proto, path)
    observation = genai_trial.observe(load(path), None)
    assert "mode attribute is \\xff" in observation.refused
    assert capfd.readouterr() == ("", "")
