"""What convert makes of a Hugging Face tokenizer beside the input."""

import importlib.util
import shutil

import openvino
import openvino_genai
import pytest
from support.commands import in_process
from support.models import export

from graphpass.artifacts import companions
from graphpass.artifacts.companions import has_tokenizer

CONVERTED = {"openvino_tokenizer.xml", "openvino_tokenizer.bin", "openvino_detokenizer.xml", "openvino_detokenizer.bin"}
INSTALLED = importlib.util.find_spec("transformers") and importlib.util.find_spec("openvino_tokenizers")


def convert(capfd, source, out, *options):
    return in_process(capfd, "convert", source, "-o", out, "--target", "cpu", "--no-verify", *options)


def names(folder):
    return {file.name for file in folder.iterdir()}


def test_folders_with_a_tokenizer_are_found(tmp_path):
    assert has_tokenizer(export("llama", "onnx") / "model.onnx")
    assert not has_tokenizer(export("llama", "ov-stateful") / "openvino_model.xml")
    assert not has_tokenizer(tmp_path / "model.onnx")


def test_missing_packages_are_named(capfd, tmp_path, monkeypatch):
    monkeypatch.setattr(companions, "_PACKAGES", {"no_such_module": "no-such-package"})
    done = convert(capfd, export("llama", "onnx"), tmp_path / "out")
    assert done.code == 0
    said = "  tokenizer not converted: no-such-package not installed; pip install 'graphpass[genai]'\n"
    assert said in done.out
    assert not names(tmp_path / "out") & CONVERTED
    assert "tokenizer.json" in names(tmp_path / "out")
    assert "tokenizer not" not in convert(capfd, export("llama", "onnx"), tmp_path / "out", "--no-tokenizer").out


def test_a_converted_tokenizer_is_copied(capfd, tmp_path):
    done = convert(capfd, export("llama", "ov-stateful"), tmp_path / "out")
    assert done.code == 0
    assert "tokenizer not" not in done.out
    assert names(tmp_path / "out") >= CONVERTED


@pytest.mark.skipif(not INSTALLED, reason="needs graphpass[genai]")
def test_converts_the_tokenizer_as_optimum_does(capfd, tmp_path):
    done = convert(capfd, export("llama", "onnx"), tmp_path / "out")
    assert (done.code, done.err) == (0, "")
    assert "\n  tokenizer converted by openvino-tokenizers " in done.out
    assert names(tmp_path / "out") >= CONVERTED
    ours, theirs = (openvino_genai.Tokenizer(folder) for folder in (tmp_path / "out", export("llama", "ov-stateful")))
    ids = [one.encode("hello world").input_ids.data.tolist() for one in (ours, theirs)]
    assert ids[0] == ids[1]
    assert ours.decode(ids[0][0]) == theirs.decode(ids[0][0])
    pipeline = openvino_genai.LLMPipeline(tmp_path / "out", "CPU", ATTENTION_BACKEND="SDPA")
    assert pipeline.generate("hello", max_new_tokens=3)


@pytest.mark.skipif(not INSTALLED, reason="needs graphpass[genai]")
def test_the_chat_template_is_kept(capfd, tmp_path):
    shutil.copytree(export("llama", "onnx"), tmp_path / "in")
    template = "{% for message in messages %}[{{ message['role'] }}] {{ message['content'] }}\n{% endfor %}"
    (tmp_path / "in" / "chat_template.jinja").write_text(template)
    assert convert(capfd, tmp_path / "in", tmp_path / "out").code == 0
    converted = openvino.Core().read_model(tmp_path / "out" / "openvino_tokenizer.xml")
    assert converted.get_rt_info("chat_template").astype(str) == template
    told = openvino_genai.Tokenizer(tmp_path / "out").apply_chat_template([{"role": "user", "content": "hi"}], False)
    assert told == "[user] hi\n"


@pytest.mark.skipif(not INSTALLED, reason="needs graphpass[genai]")
def test_an_unconvertible_tokenizer(capfd, tmp_path):
    shutil.copytree(export("llama", "onnx"), tmp_path / "in")
    (tmp_path / "in" / "tokenizer.json").write_text("{}")
    done = convert(capfd, tmp_path / "in", tmp_path / "out")
    assert done.code == 4
    assert done.err.startswith(f"error: GP348: the tokenizer in {tmp_path / 'in'} cannot be converted: ")
    assert not (tmp_path / "out").exists()
    assert convert(capfd, tmp_path / "in", tmp_path / "out", "--no-tokenizer").code == 0
