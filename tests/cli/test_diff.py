import json
import re
import shutil

import pytest
from support.commands import in_process, in_subprocess
from support.models import export
from support.report_schemas import assert_valid_report

pytestmark = pytest.mark.usefixtures("cache_folder")


PAIRS = [
    (("llama", "ov-stateless"), ("llama", "ov-stateful")),
    (("llama", "onnx"), ("llama", "ov-stateless")),
    (("llama", "onnx-genai"), ("qwen3", "onnx-genai")),
    (("lfm2", "ov-stateful"), ("lfm2", "ov-stateful")),
]


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_json_follows_the_schema(capfd, before, after):
    done = in_process(capfd, "diff", export(*before), export(*after), "--format", "json")
    told = json.loads(done.out)
    assert_valid_report(told, "diff")
    assert done.code == (0 if told["same"] else 1) == (0 if before == after else 1)


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_html_is_one_self_contained_page(capfd, before, after):
    done = in_process(capfd, "diff", export(*before), export(*after), "--format", "html")
    assert done.out.startswith("<!doctype html>")
    assert done.out.count("<html") == done.out.count("</html>") == 1
    assert not re.search(r"(?:src|href)=|url\(|@import", done.out)
    assert ("They are the same." in done.out) == (done.code == 0)
    assert done.out == in_process(capfd, "diff", export(*before), export(*after), "--format", "html").out


def test_differences_are_printed(capfd):
    done = in_process(capfd, "diff", export("llama", "ov-stateless"), export("llama", "ov-stateful"))
    assert (done.code, done.err) == (1, "")
    assert done.out.splitlines()[0].endswith("llama/ov-stateful/openvino_model.xml: they differ")
    assert "  +4  ReadValue  0 -> 4\n" in done.out
    assert "  + beam_idx  i32 [?]\n" in done.out
    assert "  - present.0.key  f32 [?, 2, ?, 16]\n" in done.out
    assert " more; --all prints them\n" in done.out
    assert done.out.endswith("unchanged weights: 100.00 % (458,752 of 458,752 bytes)\n")
    every = in_process(capfd, "diff", export("llama", "ov-stateless"), export("llama", "ov-stateful"), "--all")
    assert "more;" not in every.out
    assert len(every.out) > len(done.out)


def test_equal_models_are_the_same(capfd, tmp_path):
    shutil.copytree(export("llama", "onnx-genai"), tmp_path / "copy")
    done = in_process(capfd, "diff", export("llama", "onnx-genai"), tmp_path / "copy")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[0].endswith(": the same")
    assert len(done.out.splitlines()) == 3


def test_textconv_prints_the_graph(capfd):
    done = in_process(capfd, "diff", "--textconv", export("llama", "onnx") / "model.onnx")
    assert (done.code, done.err) == (0, "")
    assert "\ninput input_ids i64[batch_size, sequence_length]\n" in done.out


@pytest.mark.parametrize("arguments", [["A"], ["A", "B", "C"], [], ["A", "B", "--textconv", "C"]])
def test_other_arguments_are_refused(capfd, arguments):
    done = in_process(capfd, "diff", *arguments)
    assert done.code == 2
    assert "expected two models, or --textconv FILE" in done.err


def test_an_unreadable_model(capfd, tmp_path):
    shutil.copy(export("llama", "ov-stateful") / "openvino_model.xml", tmp_path)
    done = in_process(capfd, "diff", export("llama", "ov-stateful"), tmp_path)
    assert (done.code, done.out) == (3, "")
    assert done.err.startswith("error: GP107: ")
    assert in_subprocess("diff", "--textconv", tmp_path / "nothing").code == 3
