"""Names with escapes, carriage returns, tags and commands to CI systems: shown, never carried out."""

import json
import re

import onnx
import pytest
from onnx import TensorProto, helper
from support.commands import in_process

from graphpass.printable import on_one_line, printable, visible

HOSTILE = "a\x1b]0;owned\x07\rb\x9b31m\u202ec\n::error file=x::forged\n##[error]forged\n##vso[task]forged"


@pytest.fixture
def folder(tmp_path):
    """A model with hostile names, in a folder of a hostile name."""
    folder = tmp_path / "x\n::error file=y::forged\x1b[2J"
    folder.mkdir()
    values = [
        helper.make_tensor_value_info(f"{name}{HOSTILE}", TensorProto.INT64, [size])
        for name, size in (("in", f"n{HOSTILE}"), ("out", None))
    ]
    node = helper.make_node("Abs", [values[0].name], [values[1].name], name=HOSTILE)
    graph = helper.make_graph([node], HOSTILE, values[:1], values[1:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    (folder / "model.onnx").write_bytes(proto.SerializeToString())
    return folder


def assert_harmless(text: str) -> None:
    assert visible(text) == text
    assert not [line for line in text.splitlines() if line.lstrip().startswith("::")]
    assert "##[" not in text
    assert "##vso[" not in text


@pytest.mark.parametrize(
    "arguments",
    [
        ("inspect",),
        ("inspect", "--all"),
        ("inspect", "--format", "json"),
        ("check", "--target", "ort"),
        ("check", "--target", "cpu", "--no-confirm"),
        ("convert", "--target", "cpu", "-o", "out"),
        ("convert", "--target", "ort", "-o", "out", "--no-verify", "--allow-unfused", "--print-changed"),
        ("run", "-p", "fuse-functions", "-o", "out", "--verbose"),
        ("why", "cache"),
    ],
    ids=" ".join,
)
def test_commands_print_no_hostile_name(folder, tmp_path, capfd, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    name, *options = arguments
    done = in_process(capfd, name, folder, *options)
    assert done.code != 70
    assert_harmless(done.out)
    assert_harmless(done.err)
    if name == "inspect":
        assert "forged" in done.out
    if "json" in options:
        assert json.loads(done.out)["inputs"][0]["name"] == f"in{HOSTILE}"


def test_printed_pages_are_complete(folder, tmp_path, capfd):
    other = onnx.load(folder / "model.onnx")
    other.graph.node[0].op_type = "Neg"
    onnx.save(other, tmp_path / "other.onnx")
    page = in_process(capfd, "diff", folder, tmp_path / "other.onnx", "--format", "html").out
    (data,) = re.findall(r'<section class="picture"><script type="application/json">(.*?)</script>', page)
    (group,) = json.loads(data)["groups"]
    assert HOSTILE in group["sides"][0]["names"][0]


def test_missing_paths_are_printed_escaped(tmp_path, capfd):
    for arguments in (("inspect", f"{tmp_path}/{HOSTILE}"), (HOSTILE,), ("diff", f"--{HOSTILE}")):
        done = in_process(capfd, *arguments)
        assert done.code in {2, 3}
        assert_harmless(done.err)


def test_lines_of_names_cannot_look_like_lines_of_graphpass(folder, capfd):
    done = in_process(capfd, "convert", folder, "--target", "ort", "-o", folder / "out")
    assert [line for line in done.err.splitlines() if not line.startswith(("error: ", "  ", "hint: "))] == []


def test_control_characters_are_escaped():
    assert on_one_line("a\tb\nc") == r"a\tb\nc"
    assert printable("a::b\n  ::c #[d ##d") == "a::b\n  \\x3a:c #[d ##d"
    assert visible("é 漢字 \U0001f600\ta\n") == "é 漢字 \U0001f600\ta\n"
