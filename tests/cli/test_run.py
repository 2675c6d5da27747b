import shutil

import pytest
from support.commands import in_process
from support.folders import folder_contents
from support.models import export

from graphpass.io import load


def test_run_into_a_file(capfd, tmp_path):
    target = tmp_path / "new" / "some.xml"
    done = in_process(capfd, "run", export("llama", "onnx"), "-o", target, "-p", "to-openvino, fuse-attention")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("pipeline  to-openvino,fuse-attention\n")
    assert {file.name for file in target.parent.iterdir()} == {"some.xml", "some.bin", "some.xml.graphpass.json"}
    assert load(target).dialect == "openvino"


def test_run_into_a_folder_brings_the_companions(capfd, tmp_path):
    done = in_process(capfd, "run", export("llama", "onnx"), "-o", tmp_path / "out", "-p", "to-openvino")
    assert done.code == 0
    names = {file.name for file in (tmp_path / "out").iterdir()}
    assert {"openvino_model.xml", "openvino_model.bin", "config.json", "tokenizer.json"} <= names


def test_run_from_toml(capfd, tmp_path):
    pipeline = tmp_path / "pipeline.toml"
    pipeline.write_text('[[pass]]\nname = "to-openvino"\n[[pass]]\nname = "make-stateful"\nbeam-index = false\n')
    done = in_process(capfd, "run", export("llama", "onnx"), "-o", tmp_path / "out.xml", "-p", f"@{pipeline}")
    assert done.code == 0
    assert done.out.startswith("pipeline  to-openvino,make-stateful{beam-index=false}\n")
    assert "beam_idx" not in {port.name for port in load(tmp_path / "out.xml").inputs}


def test_run_stops_after_a_pass(capfd, tmp_path):
    arguments = ["run", export("llama", "onnx"), "-o", tmp_path / "out", "-p", "to-openvino,fuse-attention"]
    done = in_process(capfd, *arguments, "--stop-after", "to-openvino", "--print-after-all")
    assert done.out.startswith("pipeline  to-openvino\n")
    assert "// after to-openvino\n" in done.err
    assert "\n%input_ids = Parameter : i64[?, ?]\n" in done.err
    done = in_process(capfd, *arguments, "--stop-after", "pack")
    assert done.err == (
        "error: GP273: cannot stop after pack, which is not in the pipeline\n"
        "hint: the pipeline has the passes to-openvino, fuse-attention\n"
    )


def test_run_again_replaces_the_older_result_beside_the_input(capfd, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(export("llama", "onnx"), model)
    arguments = ["run", model / "model.onnx", "-o", model / "model.xml", "-p"]
    assert in_process(capfd, *arguments, "to-openvino").code == 0
    before = folder_contents(model)
    assert in_process(capfd, *arguments, "to-openvino,make-stateful").code == 0
    changed = {name for name, data in folder_contents(model).items() if data != before[name]}
    assert changed == {"model.xml", "model.bin", "model.xml.graphpass.json"}


def test_run_verifies_on_request(capfd, tmp_path):
    arguments = ["run", export("llama", "onnx"), "-o", tmp_path / "out.xml", "-p", "to-openvino"]
    assert "verified" not in in_process(capfd, *arguments).out
    assert "verified  same: " in in_process(capfd, *arguments, "--verify").out


def test_quiet_prints_the_file_alone(capfd, tmp_path):
    done = in_process(capfd, "run", export("llama", "onnx"), "-o", tmp_path / "o.xml", "-p", "to-openvino", "--quiet")
    assert done == (0, f"{tmp_path}/o.xml\n", "")


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("", 2, "GP210: the pipeline is empty"),
        ("to-openvino,,", 2, "GP210: expected the name of a pass (column 13)\n  to-openvino,,\n              ^\n"),
        (
            "to-openvin",
            2,
            "GP211: unknown pass 'to-openvin' (column 1)\n  to-openvin\n  ^^^^^^^^^^\nhint: did you mean",
        ),
        ("make-stateful{beam=true}", 2, "GP212: make-stateful has no option 'beam' (column 15)"),
        (
            "make-stateful{beam-index=1}",
            2,
            "GP213: option beam-index of make-stateful: expected bool, got '1' (column 26)",
        ),
        ("@missing.toml", 3, "GP108: cannot read the pipeline missing.toml"),
        ("make-stateful", 4, "GP301: pass make-stateful: expected OpenVINO IR, got ONNX"),
        ("to-openvino,make-stateful,make-stateful", 4, "GP302: pass make-stateful (after to-openvino, make-stateful)"),
    ],
)
def test_pipelines_with_errors_write_nothing(capfd, tmp_path, text, code, words):
    (tmp_path / "out").mkdir()
    done = in_process(capfd, "run", export("llama", "onnx"), "-o", tmp_path / "out", "-p", text)
    assert done.code == code
    assert done.out == ""
    assert done.err.startswith(f"error: {words}")
    assert folder_contents(tmp_path) == {"out": None}


def test_an_operator_unreadable_after_writing(capfd, tmp_path):
    done = in_process(capfd, "run", export("llama", "onnx-genai"), "-o", tmp_path / "out", "-p", "to-openvino")
    assert done.code == 6
    assert done.err.startswith("error: GP502: ")
    assert "\nhint: run lower-operators before to-openvino, as graphpass convert --target does\n" in done.err
    assert folder_contents(tmp_path) == {}
    lowered = ["-o", tmp_path / "out", "-p", "lower-operators,to-openvino", "-q"]
    assert in_process(capfd, "run", export("llama", "onnx-genai"), *lowered).code == 0


def test_a_file_name_with_the_wrong_suffix(capfd, tmp_path):
    done = in_process(capfd, "run", export("llama", "onnx"), "-o", tmp_path / "out.onnx", "-p", "to-openvino")
    assert done.code == 2
    assert done.err.startswith("error: GP202: ")
    assert folder_contents(tmp_path) == {}
