"""convert of folders that hold a language model and those that make embeddings for it."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy
import onnx
import openvino
import openvino_genai
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.commands import in_process
from support.decode import EXACT
from support.folders import folder_contents
from support.input_embeddings import with_input_embeddings
from support.loaded import exported
from support.models import vision

import graphpass
from graphpass.model_files import find_model, models_in

if TYPE_CHECKING:
    from pathlib import Path

LANGUAGE_MODEL = "openvino_language_model"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return shutil.copytree(vision("qwen2_vl"), tmp_path / "in")


def convert(capfd: Any, source: Path, out: Path, *options: str) -> Any:
    return in_process(capfd, "convert", source, "-o", out, "--target", "cpu", *options)


def generated(folder: Path, backend: str) -> list[str]:
    pipeline = openvino_genai.VLMPipeline(folder, "CPU", ATTENTION_BACKEND=backend, **EXACT)
    pixels = numpy.random.default_rng(1).integers(0, 256, (1, 56, 56, 3), dtype=numpy.uint8)
    settings = openvino_genai.GenerationConfig(max_new_tokens=16, do_sample=False, ignore_eos=True)
    images = [openvino.Tensor(pixels)]
    results = [pipeline.generate("hello", generation_config=settings, **more) for more in ({"images": images}, {})]
    return [text for result in results for text in result.texts]


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("qwen2_vl", "cpu"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (("llava", "cpu"), ("llava", "paged"), ("qwen3_vl", "paged"))
        ),
    ],
)
def test_openvino_genai_generates_the_same(capfd: Any, tmp_path: Path, name: str, target: str) -> None:
    source, out = vision(name), tmp_path / "out"
    done = in_process(capfd, "convert", source, "-o", out, "--target", target, "--format", "json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["verification"]["passed"]
    assert [folder.rpartition("/")[2] for folder in told["graphs"]] == [f"{LANGUAGE_MODEL}.xml"]
    before, after = folder_contents(source), folder_contents(out)
    assert set(after) == {*before, "graphpass.json"}
    others = set(before) - {f"{LANGUAGE_MODEL}.xml", f"{LANGUAGE_MODEL}.bin"}
    assert all(after[file] == before[file] for file in others)
    backends = ("SDPA", "PA") if target == "cpu" else ("PA",)
    for backend in backends:
        expected = generated(source, backend)
        assert len(set(expected)) == 2
        assert generated(out, backend) == expected


@pytest.mark.slow
def test_the_folder_means_its_language_model(capfd: Any, source: Path) -> None:
    assert find_model(source) == source / f"{LANGUAGE_MODEL}.xml"
    assert in_process(capfd, "check", source, "--target", "npu").code == 0
    inspected = in_process(capfd, "inspect", source)
    assert "position_ids    i64  [3, ?, ?]" in inspected.out
    assert in_process(capfd, "verify", source, source, "--steps", "1").code == 0


def test_an_up_to_date_result_is_not_converted(capfd: Any, tmp_path: Path, source: Path) -> None:
    options = ["--no-verify", "--if-changed", "--weights", "share"]
    assert convert(capfd, source, tmp_path / "out", *options).code == 0
    weights = "openvino_vision_embeddings_model.bin"
    assert (tmp_path / "out" / weights).samefile(source / weights)
    again = convert(capfd, source, tmp_path / "out", *options)
    assert "up to date" in again.out
    (source / "openvino_config.json").write_text("{}")
    assert "up to date" not in convert(capfd, source, tmp_path / "out", *options).out
    assert (tmp_path / "out" / "openvino_config.json").read_text() == "{}"


def test_files_of_other_runtimes_are_not_copied(capfd: Any, tmp_path: Path, source: Path) -> None:
    (source / ".cache").mkdir()
    (source / ".gitattributes").touch()
    (source / "notes").mkdir()
    done = convert(capfd, source, tmp_path / "out", "--no-verify")
    assert f"{source / 'notes'} is not copied: it is a folder" in done.out
    assert not {".cache", ".gitattributes", "notes"} & set(folder_contents(tmp_path / "out"))


def test_one_part_alone_is_converted_with_a_note(capfd: Any, tmp_path: Path, source: Path) -> None:
    file = source / f"{LANGUAGE_MODEL}.xml"
    done = convert(capfd, file, tmp_path / "out", "--no-verify")
    assert f"{file} is one part of the model in {source}; pass the folder to convert all parts" in done.err
    assert [file.name for file in models_in(tmp_path / "out")] == ["openvino_model.xml"]


def test_two_language_models_are_refused(capfd: Any, tmp_path: Path, source: Path) -> None:
    for suffix in (".xml", ".bin"):
        shutil.copyfile(source / f"{LANGUAGE_MODEL}{suffix}", source / f"openvino_talker_model{suffix}")
    done = convert(capfd, source, tmp_path / "out")
    assert done.code == 2
    assert "GP201" in done.err
    assert "hint: name one of them" in done.err
    assert not (tmp_path / "out").exists()


def test_the_input_is_not_overwritten(capfd: Any, source: Path) -> None:
    before = folder_contents(source)
    assert "GP203" in convert(capfd, source, source).err
    assert folder_contents(source) == before


class TestOnnx:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """A folder as transformers.js reads it: a decoder of embeddings, and a table of them."""
        folder = tmp_path / "onnx"
        decoder, table = with_input_embeddings(exported("llama/onnx"))
        graphpass.save(decoder, folder / "decoder_model_merged.onnx")
        ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "length"])
        rows = helper.make_tensor_value_info("inputs_embeds", TensorProto.FLOAT, ["batch", "length", table.shape[1]])
        lookup = helper.make_node("Gather", ["table", "input_ids"], ["inputs_embeds"])
        graph = helper.make_graph([lookup], "embed", [ids], [rows], [numpy_helper.from_array(table, "table")])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(model, folder / "embed_tokens.onnx")
        return folder

    @pytest.mark.slow
    def test_target_ort_writes_onnx(self, capfd: Any, tmp_path: Path, folder: Path) -> None:
        done = in_process(capfd, "convert", folder, "-o", tmp_path / "out", "--target", "ort")
        assert done.code == 0, done.err
        assert [file.name for file in models_in(tmp_path / "out")] == ["decoder_model_merged.onnx", "embed_tokens.onnx"]

    def test_target_cpu_refuses_onnx_folders(self, capfd: Any, tmp_path: Path, folder: Path) -> None:
        done = convert(capfd, folder, tmp_path / "out")
        assert "GP229" in done.err
        file = folder / "decoder_model_merged.onnx"
        assert f"name {file} to convert it alone" in done.err
        assert convert(capfd, file, tmp_path / "out", "--no-verify").code == 0
