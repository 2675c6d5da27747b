"""Models as text for git, and git itself."""

import os
import shutil
import subprocess
import sys

import onnx
import pytest
from support.models import export, fixtures
from support.quick_cases import model_files

from graphpass.errors import ReadError
from graphpass.reports.diff.listing import list_file


@pytest.mark.parametrize("file", [file for file in model_files() if file.split("/")[0] in {"t5", "lfm2", "llama"}])
def test_every_operator_has_a_line_without_weight_files(tmp_path, file):
    alone = shutil.copy(fixtures() / file, tmp_path)
    lines = list_file(tmp_path / os.path.basename(alone)).splitlines()
    assert lines == list_file(fixtures() / file).splitlines()
    assert len(lines) > 60
    assert lines[0].startswith("ONNX " if file.endswith(".onnx") else "OpenVINO IR ")
    assert all(len(line) < 5000 for line in lines)


@pytest.mark.parametrize(
    ("name", "content", "listed"),
    [
        ("pom.xml", b"<project>\n  <a/>\n</project>\n", "<project>\n  <a/>\n</project>"),
        ("broken.xml", b"<net version='11'>\n<", "<net version='11'>\n<"),
        ("spaces.xml", b'<net version="11"><x:a/></net>', '<net version="11"><x:a/></net>'),
        ("hello.onnx", b"Hello\n", "Hello"),
        ("latin.txt", b"caf\xe9\n", "caf\\xe9"),
        ("empty.xml", b"", ""),
        ("zeros.bin", bytes(5), "5 bytes, sha256 8855508aade16ec573d21e6a485dfd0a7624085c1a14b5ecdd6485de0c6839a4"),
    ],
)
def test_files_of_other_kinds_are_listed(tmp_path, name, content, listed):
    (tmp_path / name).write_bytes(content)
    assert list_file(tmp_path / name) == listed


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ReadError, match="GP101"):
        list_file(tmp_path / "missing.xml")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_git_diff_shows_changed_operators(tmp_path):
    def git(*arguments: str) -> str:
        environment = os.environ | {"HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    git("init", "-q")
    git("config", "diff.graphpass.textconv", f"{sys.executable} -m graphpass.cli diff --textconv")
    (tmp_path / ".gitattributes").write_text("*.xml diff=graphpass\n*.onnx diff=graphpass\n*.bin diff=graphpass\n")
    proto = onnx.load(export("llama", "onnx") / "model.onnx")
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    shutil.copy(export("llama", "ov-stateful") / "openvino_model.xml", tmp_path)
    (tmp_path / "openvino_model.bin").write_bytes(bytes(100))
    git("add", ".")
    git("commit", "-q", "-m", "first")
    concat = next(node for node in proto.graph.node if node.op_type == "Concat")
    concat.attribute[0].i = 3
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    text = (tmp_path / "openvino_model.xml").read_text()
    (tmp_path / "openvino_model.xml").write_text(text.replace('epsilon="0.0"', "").replace("beam_idx", "beams"))
    (tmp_path / "openvino_model.bin").write_bytes(bytes(101))
    shown = git("diff")
    changed = [line for line in shown.splitlines() if line[:1] in "+-" and line[:3] not in {"+++", "---"}]
    assert len(changed) < 20
    assert sum(line.startswith(f"+Concat {concat.name} axis=3 ") for line in changed) == 1
    assert "-Parameter beam_idx element_type=i32 shape=? -> I32[-1] beam_idx" in changed
    assert "+Parameter beams element_type=i32 shape=? -> I32[-1] beams" in changed
    assert sum(line.startswith("+101 bytes, sha256 ") for line in changed) == 1
