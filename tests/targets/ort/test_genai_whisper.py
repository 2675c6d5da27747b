"""Target `ort-genai`, of an encoder of audio and its decoder: type ``whisper``."""

from __future__ import annotations

import json
import wave
from pathlib import Path

import numpy
import onnx
import onnxruntime_genai
import pytest
from support.commands import in_process
from support.folders import folder_contents
from support.models import export, reference
from support.sequence_to_sequence import encoder_input, merged

from graphpass import load
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.targets import check_model

COUNT = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Converts the export once."""
    from graphpass.cli.main import main

    made = tmp_path_factory.mktemp("whisper") / "made"
    source = str(export("whisper", "onnx"))
    assert main(["--quiet", "convert", source, "-o", str(made), "--target", "ort-genai", "--no-verify"]) == 0
    return made


def generated(folder: Path, features: numpy.ndarray, prompt: list[list[int]], count: int = COUNT, **search) -> list:
    """Tokens after ``prompt`` that a user gets, who feeds features by hand."""
    model = onnxruntime_genai.Model(str(folder))
    options = onnxruntime_genai.GeneratorParams(model)
    length = len(prompt[0]) + count
    options.set_search_options(max_length=length, min_length=length, batch_size=len(prompt), **search)
    generator = onnxruntime_genai.Generator(model, options)
    given = onnxruntime_genai.NamedTensors()
    config = json.loads((folder / "genai_config.json").read_text())
    given[config["model"]["encoder"]["inputs"]["audio_features"]] = features
    generator.set_inputs(given)
    generator.append_tokens(numpy.array(prompt, numpy.int32))
    while not generator.is_done():
        generator.generate_next_token()
    return [generator.get_sequence(row)[len(prompt[0]) :].tolist() for row in range(len(prompt))]


def features(rows: int = 1) -> numpy.ndarray:
    one = encoder_input("whisper")["input_features"]
    return numpy.concatenate([one * 0.8**row for row in range(rows)])


def start() -> list[int]:
    return [reference("whisper")["decoder_start_token_id"]]


def test_it_generates_the_tokens_of_pytorch(folder):
    assert generated(folder, features(), [start()]) == [reference("whisper")["greedy_ids"]]
    # Rows of a batch are those alone.
    both = generated(folder, features(2), [start()] * 2)
    assert both == [generated(folder, row[None], [start()])[0] for row in features(2)]


@pytest.mark.slow
def test_it_generates_as_the_builder_s_export_does(folder):
    """The same weights, with a prompt, and until the positions end, and with beams."""
    theirs = export("whisper", "onnx-genai")
    for prompt, search in (([1, 5, 9, 14], {}), ([1], {"num_beams": 3}), ([1, 7], {"num_beams": 2})):
        rows, count = [prompt] * 2, 64 - len(prompt)
        ours = generated(folder, features(2), rows, count, **search)
        assert ours == generated(theirs, features(2), rows, count, **search)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["merged", "builder", "own"])
def test_other_forms_of_the_export_generate_the_same(form, folder, tmp_path, capfd):
    sources = {"merged": lambda: merged("whisper", tmp_path / "in"), "own": lambda: folder}
    source = sources.get(form, lambda: export("whisper", "onnx-genai"))()
    done = in_process(
        capfd, "convert", source, "-o", tmp_path / "out", "--target", "ort-genai{context=64}", "--no-verify"
    )
    assert done.code == 0, done.err
    assert generated(tmp_path / "out", features(), [start()]) == [reference("whisper")["greedy_ids"]]
    if form == "own":
        before, after = folder_contents(folder), folder_contents(tmp_path / "out")
        assert {name for name in before if before[name] != after[name]} == {"graphpass.json"}


@pytest.mark.slow
def test_both_parts_may_read_one_data_file(tmp_path, capfd):
    """Weights that move to the encoder stay in the data file of the merged decoder."""
    source = merged("whisper", tmp_path / "in")
    names = ["decoder_model_merged.onnx", "encoder_model.onnx"]
    for name in names:
        outside = {"save_as_external_data": True, "location": f"{name}_data", "size_threshold": 0}
        onnx.save(onnx.load(source / name), source / name, **outside)
    done = in_process(capfd, "convert", source, "-o", tmp_path / "out", "--target", "ort-genai")
    assert done.code == 0, done.err
    data = {name: (source / name).read_bytes() for name in (f"{name}_data" for name in names)}
    assert {file.name: file.read_bytes() for file in (tmp_path / "out").glob("*_data")} == data
    assert generated(tmp_path / "out", features(), [start()]) == [reference("whisper")["greedy_ids"]]


@pytest.mark.slow
@pytest.mark.parametrize("option", ["precision=f16", "device=cuda"])
def test_both_parts_are_f16(option, tmp_path, capfd):
    """Kernels of CUDA were not run; those of the CPU compute its folder as well."""
    target = f"ort-genai{{{option}}}"
    done = in_process(capfd, "convert", export("whisper", "onnx"), "-o", tmp_path, "--target", target)
    assert "verified  same: 3 sequences, 36 greedy steps, last_hidden_state, logits compared" in done.out
    encoder, decoder = load(tmp_path / "encoder.onnx"), load(tmp_path / "decoder.onnx")
    assert {cache.element_type for cache in analyze_caches(decoder).caches} == {"f16"}
    assert [port.element_type for port in encoder.outputs] == ["f32", *["f16"] * 4]
    config = json.loads((tmp_path / "genai_config.json").read_text())
    asked = config["model"]["decoder"].pop("session_options", None)
    assert asked == ({"provider_options": [{"cuda": {}}]} if option == "device=cuda" else None)
    (tmp_path / "genai_config.json").write_text(json.dumps(config))
    assert generated(tmp_path, features(), [start()]) == [reference("whisper")["greedy_ids"]]


@pytest.mark.slow
def test_convert_proves_and_writes_the_folder_of_the_runtime(tmp_path, capfd):
    done = in_process(capfd, "convert", export("whisper", "onnx"), "-o", tmp_path / "out", "--target", "ort-genai")
    assert done.code == 0, done.err
    assert "contract  holds; confirmed: generated on onnxruntime-genai" in done.out
    assert "verified  same: 3 sequences, 36 greedy steps, last_hidden_state, logits compared" in done.out
    assert {"encoder.onnx", "decoder.onnx", "genai_config.json", "tokenizer.json"} <= folder_contents(
        tmp_path / "out"
    ).keys()
    config = json.loads((tmp_path / "out" / "genai_config.json").read_text())
    assert config["model"]["context_length"] == 64
    assert not config["search"]["past_present_share_buffer"]
    blocks = analyze_caches(load(tmp_path / "out" / "decoder.onnx")).attention
    assert [block.form for block in blocks] == ["GroupQueryAttention", "decomposed"] * 2


@pytest.mark.slow
def test_transcribes_as_the_folder_of_the_builder(folder, tmp_path):
    sound = numpy.sin(numpy.arange(32000) ** 1.3 / 50) * 0.3
    with wave.open(str(tmp_path / "sound.wav"), "wb") as file:
        file.setparams((1, 2, 16000, len(sound), "NONE", ""))
        file.writeframes((sound * 32767).astype("<i2").tobytes())
    heard = []
    for one in (folder, export("whisper", "onnx-genai")):
        model = onnxruntime_genai.Model(str(one))
        sounds = onnxruntime_genai.Audios.open(str(tmp_path / "sound.wav"))
        inputs = model.create_multimodal_processor()(["a"], audios=sounds)
        computed = inputs["audio_features"].as_numpy()
        options = onnxruntime_genai.GeneratorParams(model)
        options.set_search_options(max_length=20, min_length=20)
        generator = onnxruntime_genai.Generator(model, options)
        generator.set_inputs(inputs)
        while not generator.is_done():
            generator.generate_next_token()
        heard.append((computed, generator.get_sequence(0).tolist()))
    assert numpy.array_equal(heard[0][0], heard[1][0])
    assert heard[0][1] == heard[1][1]


def test_check_opens_the_folder(folder, capfd):
    done = in_process(capfd, "check", folder, "--target", "ort-genai")
    assert done.code == 0, done.err
    assert "confirmed: generated on onnxruntime-genai" in done.out


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("whisper", "its encoder does not return present.0.encoder.key: run graphpass convert"),
        ("t5", "input encoder_attention_mask of its decoder is not fed; onnxruntime-genai feeds encoders of audio"),
    ],
)
def test_check_predicts_refusals(model, reason, capfd):
    done = in_process(capfd, "check", export(model, "onnx"), "--target", "ort-genai")
    assert done.code == 1
    assert reason in done.out
    assert "not confirmed: onnxruntime-genai does not support this model: " in done.out


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda ports: setattr(ports[0], "elem_type", 10), "reads f16 and returns f32"),
        (
            lambda ports: setattr(ports[0].shape.dim[2], "dim_value", 1000),
            "reads 1000 frames, and onnxruntime-genai feeds",
        ),
        (
            lambda ports: setattr(ports[1].shape.dim[1], "dim_value", 750),
            "returns 750 positions, and onnxruntime-genai",
        ),
        (lambda ports: setattr(ports[2].shape.dim[1], "dim_value", 4), "and input past_key_values.0.encoder.key"),
    ],
)
def test_check_refuses_encoders_of_other_sizes_and_types(edit, reason, folder):
    encoder = load(folder / "encoder.onnx")
    edit([port.type.tensor_type for port in (*encoder.proto.graph.input, *encoder.proto.graph.output)])
    report = check_model(load(folder / "decoder.onnx"), "ort-genai", confirm=False, encoder=encoder)
    assert reason in str(report.findings[0].reason)
    assert not report.holds


def test_check_of_a_decoder_alone_is_not_tried():
    model = load(export("whisper", "onnx") / "decoder_with_past_model.onnx")
    report = check_model(model, "ort-genai")
    assert report.holds
    assert report.confirmation.outcome == "impossible"


@pytest.mark.parametrize(
    ("model", "target", "reason"),
    [
        ("t5", "ort-genai", "GP397: onnxruntime-genai does not support this model: its encoder reads input_ids ["),
        ("whisper", "ort-genai{cache-precision=i8}", "GP226: cache-precision does not support models of an encoder"),
    ],
)
def test_unsupported_forms_are_refused(model, target, reason, tmp_path, capfd):
    done = in_process(capfd, "convert", export(model, "onnx"), "-o", tmp_path / "out", "--target", target)
    assert done.code in {2, 4}
    assert done.err.startswith(f"error: {reason}")
    assert "hint: " in done.err
    assert not (tmp_path / "out").exists()
