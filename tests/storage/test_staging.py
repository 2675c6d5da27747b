import os
import subprocess
from pathlib import Path

import pytest

from graphpass.errors import UsageError, WriteError
from graphpass.storage.staging import check_writable, staging, write_whole


def tree(folder: Path) -> dict[str, bytes | None]:
    return {str(file.relative_to(folder)): file.read_bytes() if file.is_file() else None for file in folder.rglob("*")}


def fill(folder: Path, text: str = "new") -> None:
    for name in ("model.xml", "model.bin", "tokens/vocab.txt"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text + name)


def test_makes_the_destination_and_its_parents(tmp_path):
    destination = tmp_path / "a" / "b" / "c"
    with staging(destination) as folder:
        fill(folder)
        assert not (tmp_path / "a").exists()
    assert tree(destination)["tokens/vocab.txt"] == b"newtokens/vocab.txt"
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_a_new_destination_can_be_read_by_others(tmp_path):
    (tmp_path / "plain").mkdir()
    with staging(tmp_path / "new") as folder:
        fill(folder)
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_keeps_other_files_of_the_destination(tmp_path):
    fill(tmp_path, "old")
    (tmp_path / "other.txt").write_text("other")
    with staging(tmp_path) as folder:
        (folder / "model.xml").write_text("new")
    assert tree(tmp_path) == {
        "model.xml": b"new",
        "model.bin": b"oldmodel.bin",
        "tokens": None,
        "tokens/vocab.txt": b"oldtokens/vocab.txt",
        "other.txt": b"other",
    }


def test_a_relative_destination_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for destination in (Path(), Path("out"), Path("../" + tmp_path.name + "/out2")):
        with staging(destination) as folder:
            fill(folder)
        assert (destination / "model.xml").exists()


def test_replaces_a_link_and_keeps_its_target(tmp_path):
    (tmp_path / "real").write_text("real")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "model.xml").symlink_to(tmp_path / "real")
    with staging(tmp_path / "out") as folder:
        fill(folder)
    assert (tmp_path / "real").read_text() == "real"
    assert not (tmp_path / "out" / "model.xml").is_symlink()


@pytest.fixture
def pipe(tmp_path):
    """Return a named pipe in a folder of its own, and a descriptor that reads it."""
    if not hasattr(os, "mkfifo"):
        pytest.skip("no named pipes here")
    (tmp_path / "pipes").mkdir()
    path = tmp_path / "pipes" / "page.html"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    yield path, reader
    os.close(reader)


def test_a_pipe_is_written_to_and_stays(pipe):
    path, reader = pipe
    check_writable(path)
    write_whole(path, "page")
    assert (os.read(reader, 9), path.is_fifo()) == (b"page", True)


def test_a_link_to_an_open_file_stays(tmp_path):
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "stdout"
    with (tmp_path / "out.txt").open("w") as stream:
        link.symlink_to(f"/proc/self/fd/{stream.fileno()}")
        check_writable(link)
        write_whole(link, "page")
    assert (link.is_symlink(), (tmp_path / "out.txt").read_text()) == (True, "page")


def test_a_stream_that_is_full_is_an_error():
    with pytest.raises(WriteError, match="cannot write to /dev/full: No space left on device") as raised:
        write_whole(Path("/dev/full"), "page")
    assert raised.value.id == "GP501"
    assert Path("/dev/full").is_char_device()


def test_a_result_replaces_no_pipe(pipe):
    path, _ = pipe
    with pytest.raises(WriteError, match=r"it is not a regular file \(.*page.html\)"), staging(path.parent) as folder:
        (folder / path.name).write_text("page")
    assert path.is_fifo()


@pytest.mark.parametrize("error", [ValueError("bug"), UsageError("GP200", "x"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("destination", [".", "a/b"])
def test_an_error_in_the_block_leaves_no_files(tmp_path, error, destination):
    (tmp_path / "other.txt").write_text("other")
    with pytest.raises(type(error)), staging(tmp_path / destination) as folder:  # noqa: PT012
        fill(folder)
        raise error
    assert tree(tmp_path) == {"other.txt": b"other"}


STEPS = ("fsync", "link", "mkdir", "open", "rename", "replace", "rmdir", "symlink", "unlink")


def failing_at(patched, step, error):
    """Have the file system refuse one step; gives a list that then holds what it was."""
    count, failed = 0, []

    def refusing(name, function):
        def call(*arguments, **options):
            nonlocal count
            count += 1
            if count == step:
                failed.append(name)
                raise error
            return function(*arguments, **options)

        return call

    for name in STEPS:
        patched.setattr(os, name, refusing(name, getattr(os, name)))
    return failed


def no_links(*_, **__):
    raise PermissionError(1, "Operation not permitted")


def older(folder):
    """An older result: a graph that is a link to elsewhere, weights, and another file."""
    (folder / "real").mkdir(parents=True)
    (folder / "real" / "model.xml").write_text("old graph")
    (folder / "out").mkdir()
    (folder / "out" / "model.xml").symlink_to(Path("..") / "real" / "model.xml")
    (folder / "out" / "model.bin").write_text("old weights")
    (folder / "out" / "other.txt").write_text("other")
    (folder / "out" / "gone.txt").write_text("gone")
    return folder / "out"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "interrupt"]
)
def test_a_failure_at_any_step_restores_all_files(tmp_path, monkeypatch, error, links):
    """Old or new as a whole after each step that fails, and after the next writer nothing else is left."""
    complete = {"model.xml", "model.bin", "tokens", "tokens/vocab.txt", "other.txt"}
    seen = set()
    for step in range(1, 1000):
        out = older(tmp_path / str(step))
        before = tree(out)
        with monkeypatch.context() as patched:
            if not links:
                patched.setattr(os, "symlink", no_links)
            failed = failing_at(patched, step, error)
            raised = False
            try:
                with staging(out, {"gone.txt", "never-there.txt", "model.bin"}) as folder:
                    fill(folder)
            except (WriteError, KeyboardInterrupt):
                raised = True
        is_old = (out / "model.bin").read_text() == "old weights"
        seen.add((raised, is_old))
        if isinstance(error, OSError):
            assert raised == is_old
        with staging(out) as folder:
            (folder / "other.txt").write_text("other")
        if is_old:
            assert tree(out) == before
            assert os.readlink(out / "model.xml") == "../real/model.xml"
        else:
            assert set(tree(out)) == complete
            assert (out / "model.xml").read_text() == "newmodel.xml"
            assert not any(path.is_symlink() for path in out.rglob("*"))
        if not failed:
            break
    assert seen >= {(True, True), (False, False)}
    assert step > 25


def test_files_are_replaced_atomically(tmp_path, monkeypatch):
    """Between any two steps a reader finds only old content, or only new."""
    out = older(tmp_path)
    found = []

    def looking(function):
        def call(*arguments, **options):
            done = function(*arguments, **options)
            names = ("model.xml", "model.bin", "tokens/vocab.txt")
            found.append([(out / name).read_text()[:3] if (out / name).exists() else None for name in names])
            return done

        return call

    for name in ("replace", "rename", "symlink", "unlink", "link"):
        monkeypatch.setattr(os, name, looking(getattr(os, name)))
    with staging(out) as folder:
        fill(folder)
    assert len(found) > 15
    assert [states for number, states in enumerate(found) if not number or states != found[number - 1]] == [
        ["old", "old", None],
        ["new", "new", "new"],
    ]


def test_without_links_the_graph_moves_last(tmp_path, monkeypatch):
    moved = []
    replace = os.replace

    def record(source, target):
        moved.append(Path(target).name)
        replace(source, target)

    monkeypatch.setattr(os, "symlink", no_links)
    monkeypatch.setattr(os, "replace", record)
    with staging(tmp_path) as folder:
        for name in ("a.onnx", "b.xml", "z.bin", "z.data", "config.json"):
            (folder / name).touch()
    assert moved == ["config.json", "z.bin", "z.data", "a.onnx", "b.xml"]


def test_two_writers_make_parents_of_one_name(tmp_path):
    with staging(tmp_path / "a" / "b" / "one") as one:
        fill(one)
        with staging(tmp_path / "a" / "b" / "two") as two:
            fill(two)
    assert {path.name for path in (tmp_path / "a" / "b").iterdir()} == {"one", "two"}
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_parents_are_removed_when_the_rename_fails(tmp_path, monkeypatch):
    def refuse(self, target):
        raise PermissionError(13, "Permission denied", str(target))

    with monkeypatch.context() as patched, pytest.raises(WriteError, match="Permission denied"):  # noqa: PT012
        patched.setattr(Path, "rename", refuse)
        with staging(tmp_path / "a" / "b") as folder:
            fill(folder)
    assert tree(tmp_path) == {}


@pytest.mark.parametrize("destination", ["file", "file/below", "file/below/deeper"])
def test_a_destination_other_than_a_folder(tmp_path, destination):
    (tmp_path / "file").write_text("file")
    with (
        pytest.raises(WriteError, match=r"GP501: cannot write to .*file.*Not a directory"),
        staging(tmp_path / destination),
    ):
        pytest.fail("the block must not run")
    assert tree(tmp_path) == {"file": b"file"}


def test_a_folder_in_place_of_an_output_file(tmp_path):
    (tmp_path / "model.xml").mkdir()
    with pytest.raises(WriteError, match=r"GP501: .*model\.xml"), staging(tmp_path) as folder:
        fill(folder)
    assert tree(tmp_path) == {"model.xml": None}


def test_a_full_disk_keeps_the_older_result(tmp_path):
    mount = tmp_path / "small"
    mount.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(mount)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        (mount / "model.bin").write_text("old")
        with pytest.raises(WriteError, match=r"GP501: .*No space left"), staging(mount) as folder:
            (folder / "model.bin").write_bytes(bytes(1 << 20))
        assert tree(mount) == {"model.bin": b"old"}
    finally:
        subprocess.run(["umount", str(mount)], check=True)
