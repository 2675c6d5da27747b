"""Decoders of embeddings: onnxruntime-genai opens their folders and generates PyTorch's tokens."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy
import onnxruntime_genai
import pytest
from support.commands import in_process
from support.input_embeddings import with_input_embeddings
from support.loaded import exported
from support.models import reference, vision_onnx

import graphpass
from graphpass.errors import PreconditionError, UnsupportedError
from graphpass.runtime import text_embeddings
from graphpass.targets import check_model
from graphpass.targets.ort.genai_config import genai_config
from graphpass.targets.ort.genai_parts import (
    find_parts,
    parts_sections,
    require_tokens,
    section_of,
    stages,
    why_no_parts,
)
from graphpass.testing import parse_model, run

FOLDER = vision_onnx("qwen2_5_vl")
TOKENS = json.loads((FOLDER / "reference.json").read_text())
DECODER = "decoder/model.onnx"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    copy: Path = shutil.copytree(FOLDER, tmp_path / "in")
    return copy


def change(file: Path, **entries: Any) -> None:
    content = json.loads(file.read_text())
    file.write_text(json.dumps({key: value for key, value in {**content, **entries}.items() if value is not None}))


def generated(folder: Path, prompt: list[int], image: bool = False) -> list[int]:
    model = onnxruntime_genai.Model(str(folder))
    options = onnxruntime_genai.GeneratorParams(model)
    options.set_search_options(max_length=len(TOKENS["image" if image else "text"]))
    generator = onnxruntime_genai.Generator(model, options)
    if image:
        patches = numpy.random.default_rng(TOKENS["seed"]).standard_normal((16, 1176)).astype(numpy.float32)
        tensors = onnxruntime_genai.NamedTensors()
        tensors["input_ids"] = numpy.array([prompt], numpy.int32)
        tensors["pixel_values"] = patches
        tensors["image_grid_thw"] = numpy.array([TOKENS["grid"]], numpy.int64)
        tensors["num_image_tokens"] = numpy.array([4], numpy.int64)
        generator.set_inputs(tensors)
    else:
        generator.append_tokens(numpy.array([prompt], numpy.int32))
    while not generator.is_done():
        generator.generate_next_token()
    return [int(token) for token in generator.get_sequence(0)]


@pytest.mark.parametrize(("name", "options"), [("", ()), (DECODER, ("--no-verify",))])
def test_text_and_images_give_the_tokens_of_pytorch(capfd, tmp_path, name, options):
    out = tmp_path / "out"
    done = in_process(capfd, "convert", FOLDER / name, "-o", out, "--target", "ort-genai", *options)
    assert done.code == 0, done.err
    assert options or "confirmed: generated on onnxruntime-genai" in done.out
    section = section_of(out / DECODER)
    # mobius writes a type that onnxruntime-genai does not have, and no vision_start_token_id.
    assert section_of(FOLDER / DECODER)["type"] == "qwen2_5_vl_text"
    assert section["type"] == "qwen2_5_vl"
    assert (out / section["vision"]["config_filename"]).read_bytes() == (FOLDER / "processor_config.json").read_bytes()
    assert generated(out, TOKENS["text"][:5]) == TOKENS["text"]
    assert generated(out, TOKENS["image"][:10], image=True) == TOKENS["image"]
    assert in_process(capfd, "check", out, "--target", "ort-genai", "--no-confirm").code == 0


class TestEmbeddingAlone:
    @pytest.fixture
    def decoder(self, tmp_path: Path) -> Path:
        """A decoder of embeddings beside a model with their table, under other names."""
        model, table = with_input_embeddings(exported("llama/onnx"))
        graphpass.save(model, tmp_path / "text.onnx")
        rows = ", ".join(str(row.tolist()) for row in table)
        embedding = parse_model(
            f"%ids = Parameter : i64[batch, n]\n%rows = Gather([{rows}], %ids) {{axis=0}} : f32[batch, n, 64]\n"
            "Result(%rows) {name=rows}",
            dialect="onnx",
        )
        graphpass.save(embedding, tmp_path / "table.onnx")
        shutil.copyfile(Path(exported("llama/onnx").path).parent / "config.json", tmp_path / "config.json")
        return tmp_path / "text.onnx"

    def test_the_stages_give_the_tokens_of_the_whole_model(self, capfd, tmp_path, decoder):
        wanted, out = reference("llama"), tmp_path / "out"
        done = in_process(capfd, "convert", decoder.parent, "-o", out, "--target", "ort-genai")
        assert done.code == 0, done.err
        assert section_of(out / "text.onnx")["type"] == "decoder-pipeline"
        prompt = list(wanted["prompt_ids"])
        model = onnxruntime_genai.Model(str(out))
        options = onnxruntime_genai.GeneratorParams(model)
        options.set_search_options(max_length=len(prompt) + len(wanted["greedy_ids"]))
        generator = onnxruntime_genai.Generator(model, options)
        generator.append_tokens(numpy.array([prompt], numpy.int32))
        while not generator.is_done():
            generator.generate_next_token()
        count = len(generator.get_sequence(0)) - len(prompt)
        assert list(generator.get_sequence(0))[len(prompt) :] == list(wanted["greedy_ids"])[:count]

    def test_stages_pass_embeddings_on_under_the_name_of_the_input(self, decoder):
        model = graphpass.load(decoder)
        parts = find_parts(model)
        assert parts is not None
        entries = stages(model, parts)
        embedding, last = entries["pipeline"][0].values()
        assert embedding["output_names_forwarder"] == {"rows": "inputs_embeds"}
        assert last["filename"] == "text.onnx"
        assert entries["inputs"]["input_ids"] == "ids"
        assert parts_sections(model, parts, decoder) == {"type": "decoder-pipeline"}

    def test_a_decoder_alone_is_refused_with_advice(self, decoder):
        (decoder.parent / "table.onnx").unlink()
        reason = why_no_parts(graphpass.load(decoder))
        assert reason is not None
        assert "export the model with its embedding, or use target ort" in reason
        with pytest.raises(UnsupportedError, match="GP397"):
            genai_config(graphpass.load(decoder), decoder, 64)

    def test_models_that_nothing_feeds_are_refused(self, decoder):
        text = "%pixels = Parameter : f32[n, 8]\n%y = Relu(%pixels)\nResult(%y) {name=features}"
        graphpass.save(parse_model(text, dialect="onnx"), decoder.parent / "vision.onnx")
        reason = why_no_parts(graphpass.load(decoder))
        assert reason is not None
        assert "table.onnx has no input for the features that vision.onnx returns: run pass read-image" in reason
        graphpass.save(parse_model(text, dialect="onnx"), decoder.parent / "audio.onnx")
        reason = why_no_parts(graphpass.load(decoder))
        assert reason is not None
        assert "one model of images beside the embedding model, and its folder has audio.onnx" in reason


def test_parts_are_found_by_their_ports():
    parts = find_parts(graphpass.load(FOLDER / DECODER))
    assert parts is not None
    assert parts.decoder == DECODER
    assert parts.files == ("embedding/model.onnx", "vision_encoder/model.onnx")
    assert parts.vision is parts.models["vision_encoder/model.onnx"]
    assert parts.ids.name == "input_ids"
    assert parts.features is not None
    assert parts.features.name == "image_features"


@pytest.mark.parametrize(
    ("stated", "model_type", "found"),
    [("fara", "qwen2_5_vl", "fara"), ("gemma3", "qwen3_vl_text", "qwen3_vl"), ("llama", "new_vl", "qwen2_5_vl")],
)
def test_the_type_of_the_input_is_kept_if_its_positions_fit(folder, stated, model_type, found):
    config = json.loads((folder / "genai_config.json").read_text())
    config["model"]["type"] = stated
    (folder / "genai_config.json").write_text(json.dumps(config))
    change(folder / "config.json", text_config={"model_type": model_type})
    assert sections(folder)["type"] == found


def sections(folder: Path) -> dict[str, Any]:
    model = graphpass.load(folder / DECODER)
    parts = find_parts(model)
    assert parts is not None
    return parts_sections(model, parts, folder / DECODER)


def test_sections_state_names_tokens_and_sizes():
    found = sections(FOLDER)
    assert found["image_token_id"] == 262
    assert found["vision_start_token_id"] == 259
    assert found["embedding"]["inputs"] == {"input_ids": "input_ids", "image_features": "image_features"}
    assert found["vision"]["inputs"] == {"pixel_values": "pixel_values", "image_grid_thw": "image_grid_thw"}
    assert found["vision"]["tokens_per_second"] == 4
    assert "session_options" not in found["vision"]


def test_unknown_tokens_of_images_are_refused(folder):
    change(folder / "config.json", vision_start_token_id=None)
    with pytest.raises(PreconditionError, match="vision_start_token_id") as error:
        require_tokens(graphpass.load(folder / DECODER), folder / DECODER)
    assert error.value.id == "GP396"
    assert require_tokens(graphpass.load(folder / DECODER), FOLDER / DECODER) is None


def test_a_decoder_alone_is_refused_for_its_embeddings(tmp_path, capfd):
    shutil.copytree(FOLDER / "decoder", tmp_path / "in")
    done = in_process(capfd, "convert", tmp_path / "in", "-o", tmp_path / "out", "--target", "ort-genai{context=64}")
    assert "its input inputs_embeds is fed only in folders that also have one model of the embedding" in done.err


def test_features_of_another_rank_are_refused(folder):
    text = "%pixel_values = Parameter : f32[1, n, 32]\n%y = Relu(%pixel_values)\nResult(%y) {name=image_features}"
    graphpass.save(parse_model(text, dialect="onnx"), folder / "vision_encoder/model.onnx")
    reason = why_no_parts(graphpass.load(folder / DECODER))
    assert reason is not None
    assert "reads features [num_feature_tokens, 32], and vision_encoder/model.onnx returns [1, n, 32]" in reason
    finding = check_model(graphpass.load(folder / DECODER), "ort-genai", confirm=False).findings[0]
    assert finding.verdict == "refused"


def test_embeddings_of_another_type_are_refused(folder):
    text = "%input_ids = Parameter : i64[b, n]\n%y = Gather(%table, %input_ids) {axis=0}\nResult(%y) {name=rows}"
    table = "%table = Constant : f16[320, 32]\n"
    graphpass.save(parse_model(table + text, dialect="onnx"), folder / "embedding/model.onnx")
    reason = why_no_parts(graphpass.load(folder / DECODER))
    assert reason is not None
    assert "returns f16, and inputs_embeds is f32" in reason


def test_embeddings_of_ids_alone_read_images_after_a_pass(capfd, folder, tmp_path):
    """As transformers.js reads such folders: programs put features of images into the embeddings."""
    file = folder / "embedding/model.onnx"
    table = text_embeddings(graphpass.load(folder / DECODER))(numpy.arange(320)[None])[0]
    rows = ", ".join(str(row.tolist()) for row in table)
    text = (
        f"%ids = Parameter : i64[b, n]\n%y = Gather([{rows}], %ids) {{axis=0}} : f32[b, n, 32]\nResult(%y) {{name=y}}"
    )
    plain = parse_model(text, dialect="onnx")
    graphpass.save(plain, file)
    reason = why_no_parts(graphpass.load(folder / DECODER))
    assert reason is not None
    assert "run pass read-image-features" in reason
    graphpass.save(run(plain, "read-image-features{token=262}"), file)
    done = in_process(capfd, "convert", folder, "-o", tmp_path / "out", "--target", "ort-genai", "--no-verify")
    assert done.code == 0, done.err
    assert generated(tmp_path / "out", TOKENS["text"][:5]) == TOKENS["text"]
    assert generated(tmp_path / "out", TOKENS["image"][:10], image=True) == TOKENS["image"]
