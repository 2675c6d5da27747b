"""convert of folders that hold an encoder and its decoders."""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path

import numpy
import openvino
import openvino_genai
import pytest
from support.commands import in_process
from support.decode import EXACT, compiled, fused_attention
from support.folders import folder_contents
from support.models import export, reference
from support.sequence_to_sequence import Generator, encoder_input, merged

from graphpass import analyze_caches, load

QUICK = [("t5", "onnx"), ("t5", "merged"), ("whisper", "ov-stateless")]
SLOW = [
    ("t5", "ov-stateless"),
    ("t5", "ov-stateful"),
    ("whisper", "onnx"),
    ("whisper", "merged"),
    ("whisper", "ov-stateful"),
]
CASES = [*QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)]


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """Converts each folder once, as a user does."""

    @functools.cache
    def build(model: str, variant: str) -> Path:
        from graphpass.cli.main import main

        folder = tmp_path_factory.mktemp(f"{model}-{variant}")
        source = merged(model, folder / "in") if variant == "merged" else export(model, variant)
        options = ["-o", str(folder / "out"), "--target", "cpu", "--no-verify"]
        assert main(["--quiet", "convert", str(source), *options]) == 0
        return folder / "out"

    return build


@pytest.mark.parametrize(("model", "variant"), CASES)
class TestOnTheCpuPlugin:
    def test_generates_the_reference_tokens(self, converted, model, variant):
        expected = reference(model)
        generator = Generator(converted(model, variant))
        generator.start(encoder_input(model))
        assert generator.greedy(expected["decoder_start_token_id"], 12) == expected["greedy_ids"]

    def test_cross_caches_are_kept_until_a_reset(self, converted, model, variant):
        generator = Generator(converted(model, variant))
        generator.start(encoder_input(model))
        first = generator.step([[5, 7]])
        generator.encoder_feeds["encoder_hidden_states"] = -generator.encoder_feeds["encoder_hidden_states"]
        kept = generator.step([[3]])
        generator.start(encoder_input(model))
        assert numpy.array_equal(generator.step([[5, 7]]), first)
        assert numpy.array_equal(generator.step([[3]]), kept)
        generator.request.reset_state()
        generator.encoder_feeds["encoder_hidden_states"] = -generator.encoder_feeds["encoder_hidden_states"]
        assert abs(generator.step([[5, 7]]) - first).max() > 1e-3

    def test_follows_beams(self, converted, model, variant):
        generator = Generator(converted(model, variant))
        generator.start(encoder_input(model))
        generator.step([[5, 7]])
        expected = generator.step([[3]])[0]
        generator.start(encoder_input(model), copies=2)
        generator.step([[4, 4], [5, 7]])
        numpy.testing.assert_allclose(generator.step([[3], [3]], [1, 1]), [expected, expected], atol=1e-5)

    def test_fuses_as_much_as_optimum_s_export(self, converted, model, variant):
        folder = export(model, "ov-stateful")
        for part in ("encoder", "decoder"):
            ours, theirs = (
                compiled(openvino.Core().read_model(place / f"openvino_{part}_model.xml"))
                for place in (converted(model, variant), folder)
            )
            assert fused_attention(ours) == fused_attention(theirs)

    def test_every_cache_is_a_variable(self, converted, model, variant):
        inventory = analyze_caches(load(converted(model, variant) / "openvino_decoder_model.xml"))
        assert inventory.stateful
        assert [len(inventory.of_kind(kind)) for kind in ("kv", "cross", "linear")] == [4, 4, 0]


@pytest.mark.slow
@pytest.mark.parametrize("case", ["onnx", "merged", "ov-stateless", "ov-stateful"])
@pytest.mark.parametrize("model", ["t5", "whisper"])
def test_verifies_every_form(capfd, tmp_path, model, case):
    source = merged(model, tmp_path / "in") if case == "merged" else export(model, case)
    done = in_process(capfd, "convert", source, "-o", tmp_path / "out", "--target", "cpu")
    assert (done.code, done.err) == (0, "")
    assert "verified  same: 3 sequences, 36 greedy steps" in done.out


def _heard(folder: Path) -> list[int]:
    """What openvino.genai's WhisperPipeline makes of some sound."""

    class Collected(openvino_genai.StreamerBase):
        def __init__(self) -> None:
            super().__init__()
            self.tokens: list[int] = []

        def write(self, token):
            self.tokens += token if isinstance(token, list) else [token]
            return openvino_genai.StreamingStatus.RUNNING

        def end(self):
            pass

    pipeline = openvino_genai.WhisperPipeline(folder, "CPU", **EXACT)
    config = openvino_genai.WhisperGenerationConfig()
    config.is_multilingual, config.ignore_eos, config.max_new_tokens = False, True, 12
    config.decoder_start_token_id, config.eos_token_id, config.pad_token_id = 1, 2, 0
    config.no_timestamps_token_id, config.max_initial_timestamp_index = 310, 0
    config.suppress_tokens = [203]  # of which the model would say nothing else
    config.begin_suppress_tokens = []
    sound = numpy.sin(numpy.arange(32000) ** 1.3 / 50) * 0.3
    collected = Collected()
    pipeline.generate(sound.tolist(), config, collected)
    return collected.tokens


@pytest.mark.parametrize("variant", ["ov-stateless", pytest.param("onnx", marks=pytest.mark.slow)])
def test_openvino_genai_transcribes_as_with_optimum_s_export(converted, tmp_path, variant):
    shutil.copytree(converted("whisper", variant), tmp_path, dirs_exist_ok=True)
    theirs = export("whisper", "ov-stateful")
    for file in theirs.glob("openvino_*tokenizer*"):
        shutil.copy(file, tmp_path)
    heard = _heard(tmp_path)
    assert len(heard) == 12
    assert heard == _heard(theirs)


@pytest.mark.slow
def test_reports_both_parts(capfd, tmp_path):
    source, out = export("t5", "onnx"), tmp_path / "out"
    done = in_process(capfd, "convert", source, "-o", out, "--target", "cpu", "--dump", tmp_path / "dump")
    assert (done.code, done.err) == (0, "")
    assert "encoder   before  ONNX, encoder, not pooled, no caches, 2 decomposed, fusable\n" in done.out
    assert "          after   OpenVINO IR, stateful, kind kv, 4 kv, 4 cross caches, 4 fused" in done.out
    assert f"to-openvino,compute-cross-caches{{source={source}/decoder_model.onnx}},change-precision" in done.out
    assert "contract  holds; confirmed: compiled on the CPU plugin" in done.out
    assert "verified  same: 3 sequences, 36 greedy steps, last_hidden_state, logits compared" in done.out
    assert {"openvino_encoder_model.xml", "openvino_decoder_model.bin", "config.json"} <= folder_contents(out).keys()
    assert (tmp_path / "dump" / "encoder" / "01-to-openvino.xml").is_file()
    assert (tmp_path / "dump" / "decoder" / "01-to-openvino.xml").is_file()


@pytest.mark.slow
def test_converting_twice_writes_the_same_bytes(capfd, tmp_path):
    for name in ("a", "b"):
        options = ["-o", tmp_path / name, "--target", "cpu", "--no-verify"]
        assert in_process(capfd, "convert", export("whisper", "onnx"), *options).code == 0
    assert folder_contents(tmp_path / "a") == folder_contents(tmp_path / "b")


def test_a_result_with_different_logits_is_not_written(capfd, tmp_path, monkeypatch):
    """The decoder for the first step of another export: its weights are not those of the other decoder."""
    shutil.copytree(export("t5", "onnx"), tmp_path / "in")
    (tmp_path / "in" / "decoder_model_merged.onnx").unlink()
    later = load(tmp_path / "in" / "decoder_with_past_model.onnx")
    weight = next(entry for entry in later.proto.graph.initializer if len(entry.raw_data) > 8192)
    weight.raw_data = (numpy.frombuffer(weight.raw_data, "f") * 1.5).tobytes()
    (tmp_path / "in" / "decoder_with_past_model.onnx").write_bytes(later.proto.SerializeToString())
    done = in_process(capfd, "convert", tmp_path / "in", "-o", tmp_path / "out", "--target", "cpu")
    assert done.code == 1
    assert done.err.startswith("error: GP601: the result does not compute the same as the input\n  DIFFERENT: ")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("variant", "missing", "reason"),
    [
        ("onnx", "decoder*", "has encoder_model.onnx, but no decoder"),
        (
            "onnx",
            "decoder_[wm]*_*",
            "has decoder_model.onnx, which has no caches, but not decoder_with_past_model.onnx",
        ),
        ("onnx", "decoder_model*", "has decoder_with_past_model.onnx, but not decoder_model.onnx, which fills the"),
        ("ov-stateless", "*with_past*", "has openvino_decoder_model.xml, which has no caches, but not openvino_"),
    ],
)
def test_a_folder_without_an_encoder_or_decoder(capfd, tmp_path, variant, missing, reason):
    shutil.copytree(export("t5", variant), tmp_path / "in", ignore=shutil.ignore_patterns(missing))
    if missing == "decoder_[wm]*_*":
        shutil.copy(export("t5", "onnx") / "decoder_model.onnx", tmp_path / "in")
        (tmp_path / "in" / "decoder_model_merged.onnx").unlink(missing_ok=True)
    done = in_process(capfd, "convert", tmp_path / "in", "-o", tmp_path / "out", "--target", "cpu")
    assert done.code == 2
    assert done.err.startswith(f"error: GP225: {tmp_path}/in {reason}")
    assert not (tmp_path / "out").exists()


def test_a_folder_with_two_models(capfd, tmp_path):
    for variant in ("onnx", "ov-stateful"):
        shutil.copytree(export("t5", variant), tmp_path / "in", dirs_exist_ok=True)
    done = in_process(capfd, "convert", tmp_path / "in", "-o", tmp_path / "out", "--target", "cpu")
    assert done.code == 2
    assert done.err.startswith(f"error: GP225: {tmp_path}/in has an encoder in ONNX and one in OpenVINO IR")


def test_an_encoder_filling_the_cross_caches(capfd, tmp_path):
    done = in_process(capfd, "convert", export("whisper", "onnx-genai"), "-o", tmp_path / "out", "--target", "cpu")
    assert done.code == 2
    assert done.err.startswith("error: GP227: ")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--target", "npu"], "target npu does not support models of an encoder and a decoder"),
        (["--target", "paged"], "target paged does not support models of an encoder and a decoder"),
        (["--target", "web"], "target web does not support models of an encoder and a decoder"),
        (["--target", "cpu{cache=reorder}"], "cache=reorder does not support models of an encoder and a decoder"),
    ],
)
def test_targets_without_encoders_are_refused(capfd, tmp_path, arguments, reason):
    done = in_process(capfd, "convert", export("t5", "onnx"), "-o", tmp_path / "out", *arguments)
    assert done.code == 2
    assert done.err.startswith(f"error: GP226: {reason}")
    assert not (tmp_path / "out").exists()


def _convert_if_changed(capfd, source, out, *options):
    return in_process(capfd, "convert", source, "-o", out, "--target", "cpu", "--no-verify", "--if-changed", *options)


def _edit(path: Path) -> None:
    """One bit of a weight."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.usefixtures("cache_folder")
@pytest.mark.parametrize("changed", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_the_same_work_is_skipped_and_other_work_is_done(capfd, tmp_path, changed):
    reasons = {
        "openvino_decoder_model.bin": "input first decoder weights changed",
        "openvino_encoder_model.bin": "input encoder weights changed",
        "openvino_decoder_with_past_model.bin": "input decoder weights changed",
        "tokenizer.json": "input beside tokenizer.json changed",
    }
    source, out = shutil.copytree(export("t5", "ov-stateless"), tmp_path / "in"), tmp_path / "out"
    (source / "tokenizer.json").write_bytes(b"{} ")
    first = _convert_if_changed(capfd, source, out, "--no-tokenizer")
    assert (first.code, first.err) == (0, "not up to date: there is no earlier result\n")
    before = folder_contents(out)
    done = _convert_if_changed(capfd, source, out, "--no-tokenizer", "-q")
    names = [f"{out}/openvino_{part}_model.xml" for part in ("encoder", "decoder")]
    assert done == (0, "".join(f"{name}\n" for name in names), "")
    said = "is up to date: the same input, pipeline, options and versions; nothing was done"
    done = _convert_if_changed(capfd, source, out, "--no-tokenizer")
    assert done == (0, "".join(f"{name} {said}\n" for name in names), "")
    assert folder_contents(out) == before
    for file in list(reasons)[:changed]:
        _edit(source / file)
        done = _convert_if_changed(capfd, source, out, "--no-tokenizer")
        assert (done.code, done.err) == (0, f"not up to date: {reasons[file]}\n")


@pytest.mark.usefixtures("cache_folder")
def test_the_manifest_of_another_result_does_not_stay(capfd, tmp_path):
    out = tmp_path / "out"
    assert _convert_if_changed(capfd, export("llama", "ov-stateless"), out).code == 0
    assert "--replace" in _convert_if_changed(capfd, export("t5", "onnx"), out).err
    done = _convert_if_changed(capfd, export("t5", "onnx"), out, "--replace")
    assert (done.code, done.err.startswith("not up to date: ")) == (0, True)
    told = json.loads((out / "graphpass.json").read_bytes())
    assert told["input"].keys() == {"encoder", "decoder", "first decoder", "beside"}
    assert told["input"]["first decoder"]["file"] == "decoder_model.onnx"
    assert told["pipeline"].keys() == told["passes"].keys() == {"encoder", "decoder"}
    assert told["graphs"] == ["openvino_encoder_model.xml", "openvino_decoder_model.xml"]
    assert all("sha256" in told["output"][graph] for graph in told["graphs"])
    done = _convert_if_changed(capfd, export("llama", "ov-stateless"), out, "--replace")
    assert (done.code, done.err.startswith("not up to date: ")) == (0, True)


@pytest.mark.usefixtures("cache_folder")
def test_one_file_of_both_decoders_is_read_once(capfd, tmp_path):
    source, out = merged("t5", tmp_path / "in"), tmp_path / "out"
    assert _convert_if_changed(capfd, source, out).code == 0
    assert json.loads((out / "graphpass.json").read_bytes())["input"].keys() == {"encoder", "decoder", "beside"}
    assert "is up to date" in _convert_if_changed(capfd, source, out).out


def test_the_input_is_not_overwritten(capfd, tmp_path):
    shutil.copytree(export("t5", "ov-stateless"), tmp_path / "in")
    before = folder_contents(tmp_path / "in")
    done = in_process(capfd, "convert", tmp_path / "in", "-o", tmp_path / "in", "--target", "cpu")
    assert done.code == 2
    assert done.err.startswith("error: GP203: ")
    assert folder_contents(tmp_path / "in") == before


#: What a part alone is to `convert`: an encoder is a model of its own.
PARTS = [("encoder_model.onnx", 0), pytest.param("decoder_with_past_model.onnx", 4, marks=pytest.mark.slow)]


@pytest.mark.parametrize(("name", "code"), PARTS)
def test_one_part_alone_is_converted_with_a_note(capfd, tmp_path, name, code):
    source, out = export("t5", "onnx"), tmp_path / "out"
    done = in_process(capfd, "convert", source / name, "-o", out, "--target", "cpu")
    assert (done.code, out.exists()) == (code, code == 0)
    assert done.err.startswith(f"{source / name} is one part of the model in {source}; pass the folder to convert all")
    shutil.copy(source / name, tmp_path)
    done = in_process(capfd, "convert", tmp_path / name, "-o", tmp_path / "alone", "--target", "cpu")
    assert (done.code, done.err.startswith("error: ")) == (code, code != 0)
