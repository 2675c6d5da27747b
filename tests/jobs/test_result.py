"""Results are written whole, with their manifest, and never over their input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import graphpass
from graphpass.engine.pipeline import parse
from graphpass.errors import UsageError
from graphpass.jobs.job import Job
from graphpass.jobs.result import Result, refuse_input
from graphpass.jobs.watch import Watch
from graphpass.testing import tiny_model


@pytest.fixture
def source(tmp_path: Path) -> graphpass.Model:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "config.json").write_text("{}")
    graphpass.save(tiny_model("llama", layers=1), tmp_path / "in" / "model.onnx")
    return graphpass.load(tmp_path / "in")


def result_of(source: graphpass.Model, output: Path, pipeline: str = "inline-functions", **settings) -> Result:
    job = Job(source.path, output, False, (), "auto", **settings)
    return Result(Watch(), job, {"": source}, {"": parse(pipeline)})


def written(result: Result, model: graphpass.Model, **more) -> None:
    with result.staged(["model.onnx"]) as folder:
        result.write(folder, {"model.onnx": model}, {"": ()}, model.path, **more)


def test_models_companions_texts_and_manifest_are_written(source, tmp_path):
    written(result_of(source, tmp_path / "out"), source, texts={"config.json": '{"a": 1}', "more.txt": "more"})
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        "config.json",
        "graphpass.json",
        "model.onnx",
        "more.txt",
    }
    assert (tmp_path / "out" / "config.json").read_text() == '{"a": 1}'
    assert json.loads((tmp_path / "out" / "graphpass.json").read_text())
    assert graphpass.load(tmp_path / "out").digest() == source.digest()


def test_an_error_leaves_the_earlier_result(source, tmp_path):
    result = result_of(source, tmp_path / "out")
    written(result, source, texts={"more.txt": "first"})

    def fail():
        with result_of(source, tmp_path / "out").staged(["model.onnx"]) as folder:
            (folder / "more.txt").write_text("second")
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        fail()
    assert (tmp_path / "out" / "more.txt").read_text() == "first"


def test_a_result_is_up_to_date_for_the_same_input_and_options(source, tmp_path):
    def again(model=source, pipeline="inline-functions", **settings):
        return result_of(model, tmp_path / "out", pipeline, **settings)

    assert again().stale() == "there is no earlier result"
    assert again(if_changed=True).earlier() == ()
    written(again(), source)
    assert again().stale() is None
    assert again().earlier() == ()
    assert again(if_changed=True).earlier() == (tmp_path / "out" / "model.onnx",)
    assert again(pipeline="fuse-functions").stale() is not None
    other = tmp_path / "other"
    graphpass.save(tiny_model("qwen3", layers=1), other / "model.onnx")
    assert again(graphpass.load(other)).stale() is not None
    (tmp_path / "out" / "model.onnx").write_bytes(b"damaged")
    assert again().stale() is not None


@pytest.mark.parametrize(
    ("dump", "refused"), [("out", True), ("out/dump", True), ("dump", False), ("out/../dump", False)]
)
def test_dumps_into_a_folder_that_is_yet_to_be_created(source, tmp_path, dump, refused):
    if refused:
        with pytest.raises(UsageError) as error:
            result_of(source, tmp_path / "out", dump_dir=tmp_path / dump)
        assert error.value.id == "GP204"
        (tmp_path / "out").mkdir()
    result_of(source, tmp_path / "out", dump_dir=tmp_path / dump)


@pytest.mark.parametrize("name", ["in/model.onnx", "in/../in/model.onnx", "link/model.onnx"])
def test_files_of_the_input_are_not_overwritten(source, tmp_path, name):
    (tmp_path / "link").symlink_to(tmp_path / "in")
    with pytest.raises(UsageError) as error:
        refuse_input(source, tmp_path / name)
    assert error.value.id == "GP203"
    refuse_input(source, tmp_path / "in" / "other.onnx")


def test_the_weights_beside_a_graph_are_part_of_the_input(source, tmp_path):
    file = tmp_path / "ir" / "model.xml"
    graphpass.save(graphpass.testing.run(source, "to-openvino"), file)
    model = graphpass.load(file)
    for name in ("model.xml", "model.XML"):  # the latter has the same file of weights
        with pytest.raises(UsageError, match="which belongs to the input"):
            refuse_input(model, file.with_name(name))
    refuse_input(model, file.with_name("other.xml"))
