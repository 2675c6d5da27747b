"""Option draft: onnxruntime-genai drafts with the copied model and generates the tokens of the model alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import onnxruntime_genai
import pytest
from support.commands import in_process
from support.models import export, reference

from graphpass.errors import UnsupportedError
from graphpass.targets.ort.genai_draft import copy_draft, draft_files, draft_section


def converted(capfd: Any, name: str, folder: Path, *options: str) -> Path:
    target = f"ort-genai{{{','.join(options)}}}" if options else "ort-genai"
    done = in_process(capfd, "convert", export(name, "onnx"), "-o", folder, "--target", target, "--no-verify")
    assert done.code == 0, done.err
    return folder


def test_drafts_are_accepted_and_tokens_stay(capfd, tmp_path):
    draft = converted(capfd, "llama", tmp_path / "small")
    folder = converted(capfd, "llama", tmp_path / "out", f"draft={draft}")
    assert (folder / "draft" / "model.onnx").read_bytes() == (draft / "model.onnx").read_bytes()
    noted = json.loads((folder / "graphpass.json").read_text())
    assert len(noted["options"]["reads"]) == 2
    assert "draft/model.onnx" in noted["output"]
    wanted = reference("llama")
    options = onnxruntime_genai.GeneratorParams(model := onnxruntime_genai.Model(str(folder)))
    options.set_search_options(max_length=len(wanted["prompt_ids"]) + len(wanted["greedy_ids"]), do_sample=False)
    generator = onnxruntime_genai.Generator(model, options)
    generator.append_tokens(numpy.array([wanted["prompt_ids"]], numpy.int32))
    while not generator.is_done():
        generator.generate_next_token()
    found = [int(token) for token in generator.get_sequence(0)][len(wanted["prompt_ids"]) :]
    assert found == list(wanted["greedy_ids"])[: len(found)]
    assert generator.get_speculative_stats()["draft_tokens_accepted"] > 0


def folder_with(tmp_path: Path, **entries: Any) -> Path:
    section = {"type": "decoder", "vocab_size": 320, "decoder": {"filename": "model.onnx", "inputs": {}}, **entries}
    (tmp_path / "genai_config.json").write_text(json.dumps({"model": section}))
    (tmp_path / "model.onnx").touch()
    return tmp_path


WHOLE = {"type": "decoder", "vocab_size": 320, "decoder": {"filename": "model.onnx", "inputs": {}}}


def test_the_section_is_the_decoder_of_the_draft(tmp_path):
    assert draft_section(folder_with(tmp_path), WHOLE) == {"filename": "draft/model.onnx", "inputs": {}}


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"vocab_size": 8}, "the model has 320 token ids, and the draft 8"),
        ({"type": "gemma3"}, "the draft is of type gemma3; expected decoder"),
        ({"decoder": {"filename": "model.onnx", "session_options": {}}}, "different session_options"),
        ({"decoder": {"filename": "model.onnx", "inputs": {"past_conv_names": "x"}}}, "states that cannot be rewound"),
    ],
)
def test_models_that_do_not_fit_are_refused(tmp_path, entries, words):
    with pytest.raises(UnsupportedError, match=words) as error:
        draft_section(folder_with(tmp_path, **entries), WHOLE)
    assert error.value.id == "GP397"


def test_other_folders_are_refused(tmp_path):
    with pytest.raises(UnsupportedError, match="that names a decoder"):
        draft_files(tmp_path)
    with pytest.raises(UnsupportedError, match="GP397"):
        copy_draft(tmp_path, tmp_path)
