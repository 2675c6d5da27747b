"""Writers that are stopped: killed, out of room, overtaken by others, or not allowed to write."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from storage import killed_writers
from support.folders import folder_contents
from support.models import export

from graphpass.errors import ReadError, WriteError
from graphpass.io import load, save, write_model
from graphpass.storage.staging import staging

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="counts what Linux is asked for")


VARIANTS = ["ov-stateful", "onnx-genai"]

#: With the number of steps from one attempt to the next.
STEP_BY_STEP = pytest.mark.parametrize(
    ("variant", "policy", "stride"),
    [
        ("ov-stateful", "copy", 4),
        ("ov-stateful", "share", 4),
        *(
            pytest.param(variant, policy, 1, marks=pytest.mark.slow)
            for variant in VARIANTS
            for policy in ("copy", "share")
        ),
    ],
)


def attempts(
    tmp_path: Path, variant: str, policy: str, stride: int, error: int = 0, links: str = "links"
) -> list[list[str]]:
    shutil.copytree(export("llama", variant), tmp_path / "in")
    (tmp_path / "work").mkdir()
    program = [sys.executable, killed_writers.__file__, load(tmp_path / "in").path, tmp_path / "work"]
    before = folder_contents(tmp_path / "in")
    done = subprocess.run(
        [*program, policy, str(stride), str(error), links], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert folder_contents(tmp_path / "in") == before
    return [line.split("\t") for line in done.stdout.splitlines()]


@pytest.mark.sampled(2)
@STEP_BY_STEP
def test_killed_at_every_step(tmp_path, variant, policy, stride):
    """A reader finds the old graph with the old weights, or the new ones; never another mixture, never none."""
    rows = attempts(tmp_path, variant, policy, stride)
    assert len(rows) > 45 // stride
    readers = [row[2] for row in rows]
    assert readers == sorted(readers, key=["old", "new"].index)
    for _, status, reader, later, stray, left in rows:
        assert (later, left) == (reader, "clean")
        assert status == "9" or (reader, stray) == ("new", "clean")


@pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_killed_at_every_step_without_links(tmp_path, stride):
    """Then files are replaced one by one, and for an instant there is no graph."""
    rows = attempts(tmp_path, "ov-stateful", "copy", stride, 0, "no-links")
    readers = [row[2] for row in rows]
    assert readers == sorted(readers, key=["old", "no graph", "new"].index)
    assert 0 < readers.count("no graph") <= 4
    for _, status, reader, later, stray, left in rows:
        assert left == "clean"
        assert later == "new" if reader != "old" else later in {"old", "new"}
        assert status == "9" or (reader, stray) == ("new", "clean")


@pytest.mark.sampled(2)
@STEP_BY_STEP
def test_a_lack_of_room_at_every_step_keeps_the_older_result(tmp_path, variant, policy, stride):
    rows = attempts(tmp_path, variant, policy, stride, 28)
    codes = {int(status) >> 8 for _, status, *_ in rows}
    assert codes == {0, 1, 3}
    for _, status, reader, later, stray, left in rows:
        assert (reader, later) == (("old", "old") if int(status) >> 8 == 1 else ("new", "new"))
        assert left == "clean"
        assert stray == "clean" or int(status) >> 8 == 3  # the clean-up itself was stopped


def test_one_of_two_writers_wins(tmp_path):
    """In a folder that is there, and in one that is not."""
    for existing in (True, False):
        out = tmp_path / str(existing)
        if existing:
            out.mkdir()
        with pytest.raises(WriteError, match=r"GP504: another process wrote"), staging(out) as late:  # noqa: PT012
            (late / "model.xml").write_text("late")
            (late / "model.bin").write_text("late")
            with staging(out) as early:
                (early / "model.bin").write_text("early")
        assert folder_contents(out) == {"model.bin": b"early"}
    assert {path.name for path in tmp_path.iterdir()} == {"True", "False"}


def test_two_writers_of_other_files(tmp_path):
    with staging(tmp_path) as one:
        (one / "one.xml").write_text("one")
        with staging(tmp_path) as two:
            (two / "two.xml").write_text("two")
    assert folder_contents(tmp_path) == {"one.xml": b"one", "two.xml": b"two"}


def test_a_living_writer_s_files_are_left_alone(tmp_path):
    with staging(tmp_path / "out") as one:
        (one / "model.bin").write_text("one")
        with staging(tmp_path / "other") as two:
            (two / "model.bin").write_text("two")
        assert folder_contents(one) == {"model.bin": b"one"}
    assert (tmp_path / "out" / "model.bin").read_text() == "one"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs another user to be")
@pytest.mark.parametrize("variant", VARIANTS)
def test_an_input_without_permission(variant):
    folder = Path(tempfile.mkdtemp())
    shutil.copytree(export("llama", variant), folder / "in")
    graph = load(folder / "in").path
    child = os.fork()
    if not child:
        os.setuid(65534)
        try:
            load(graph)
        except ReadError as error:
            os._exit(10 if "GP101" in str(error) and "Permission denied" in str(error) else 11)
        os._exit(12)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 10
    shutil.rmtree(folder)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs another user to be")
@pytest.mark.parametrize(
    ("variant", "name", "mode", "words"),
    [
        ("onnx", ".", 0o444, "GP101"),  # may be listed, but not entered
        ("onnx", "model.onnx", 0o000, "GP104"),
        ("onnx-genai", "model.onnx.data", 0o000, "GP105"),
        ("ov-stateful", "openvino_model.xml", 0o000, "GP106"),
        ("ov-stateful", "openvino_model.bin", 0o000, "GP107"),
    ],
)
def test_a_partly_unreadable_input(variant, name, mode, words):
    from graphpass.runtime.encoder_decoder import find_encoder_decoder

    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    shutil.copytree(export("llama", variant), folder / "in")
    (folder / "in" / name).chmod(mode)
    child = os.fork()
    if not child:
        os.setuid(65534)
        try:
            assert find_encoder_decoder(folder / "in") is None
            load(folder / "in")
        except ReadError as error:
            os._exit(10 if words in str(error) and "Permission denied" in str(error) else 11)
        finally:
            os._exit(12)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 10
    (folder / "in").chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs another user to be")
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_read_only_folder(variant):
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    out = folder / "out"
    out.mkdir(mode=0o555)
    shutil.copytree(export("llama", variant), folder / "in")
    model = load(folder / "in")
    child = os.fork()
    if not child:
        os.setuid(65534)
        try:
            save(model, out / f"m{model.path.suffix}")
        except WriteError as error:
            os._exit(10 if "GP501" in str(error) and "Permission denied" in str(error) else 11)
        os._exit(12)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 10
    assert folder_contents(out) == {}
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("variant", "limit"), [("ov-stateful", None), ("onnx-genai", None), ("onnx", None), ("onnx", 300_000)]
)
def test_a_full_disk_keeps_the_older_result(tmp_path, variant, limit):
    """With a limit, embedded weights go to a file of their own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        model = load(export("llama", variant))
        graph = model.path.name
        (disk / graph).write_text("old")
        with pytest.raises(WriteError, match=r"GP501: "):
            write_model(model, disk / graph, limit)
        assert folder_contents(disk) == {graph: b"old"}
        with pytest.raises(WriteError, match=r"GP501: "):
            write_model(model, disk / "new" / graph, limit)
        assert folder_contents(disk) == {graph: b"old"}
    finally:
        subprocess.run(["umount", str(disk)], check=True)
