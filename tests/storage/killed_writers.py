"""Write a model over an older result, again and again, each time killed some steps later.

Run as a program: ``killed_writers.py MODEL FOLDER POLICY STRIDE ERROR links|no-links``. A step is whatever reaches for
the file system; attempts lie STRIDE steps apart. With an ERROR other than 0 the step fails with that number instead
(28: no room). Each attempt prints a line: the step, the exit status, what a reader finds, what it finds after the next
writer came by, and whether files are left over before and after that.
Exit codes: 0 no step was left, 1 an error of graphpass, 2 another one, 3 it went on without the step.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import signal
import sys
import traceback
from pathlib import Path

from graphpass.errors import GraphpassError
from graphpass.io import load, write_model
from graphpass.storage.staging import staging

_EVENTS = {
    "open",
    "os.rename",
    "os.link",
    "os.symlink",
    "os.mkdir",
    "os.remove",
    "os.rmdir",
    "os.truncate",
    "fcntl.ioctl",
}
#: An older result, by the suffix of the model.
_OLD = {
    ".xml": {"openvino_model.xml": b"old graph", "openvino_model.bin": b"old weights", "other.txt": b"other"},
    ".onnx": {"model.onnx": b"old graph", "model.onnx.data": b"old weights", "other.txt": b"other"},
}


def main(model_file: Path, folder: Path, policy: str, stride: int, error: int, links: str) -> None:
    if links == "no-links":
        os.symlink = _no_links
    model, older = load(model_file), _OLD[model_file.suffix]
    graph = next(iter(older))
    model.digest()  # settles names
    new = folder / "reference"
    write_model(model, new / graph, weights=policy)
    (new / "other.txt").write_bytes(older["other.txt"])
    states = {_state(new): "new"}
    done = False
    step = 0
    while not done:
        destination = folder / str(step)
        destination.mkdir()
        for name, content in older.items():
            (destination / name).write_bytes(content)
        states[_state(destination)] = "old"
        child = os.fork()
        if not child:
            _attempt(model, destination / graph, policy, step, error)
        _, status = os.waitpid(child, 0)
        done = os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0
        found = _state(destination)
        reader = states.get(found, "no graph" if graph not in dict(found) else "mixed")
        stray = sorted(path.name for path in destination.iterdir() if path.name.startswith("."))
        with staging(destination) as staged:
            (staged / "other.txt").write_bytes(older["other.txt"])
        left = sorted(path.name for path in destination.iterdir() if path.name.startswith("."))
        later = states.get(_state(destination), "mixed")
        told = (str(step), str(status), reader, later, "stray" if stray else "clean", "stray" if left else "clean")
        sys.stdout.write("\t".join(told) + "\n")
        sys.stdout.flush()
        shutil.rmtree(destination)
        step += stride


def _no_links(*_: object, **__: object) -> None:
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def _state(folder: Path) -> tuple[tuple[str, str], ...]:
    return tuple(
        (path.name, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in sorted(folder.iterdir())
        if not path.name.startswith(".") and path.exists()  # a link that leads nowhere yet is not a file
    )


def _attempt(model, target: Path, policy: str, step: int, error: int) -> None:
    count = 0

    def reach() -> None:
        nonlocal count
        count += 1
        if count == step + 1:
            if error:
                raise OSError(error, os.strerror(error))
            os.kill(os.getpid(), signal.SIGKILL)

    def audit(event: str, arguments: tuple[object, ...]) -> None:
        if event in _EVENTS and not (event == "open" and str(arguments[0]).endswith((".py", ".pyc", "/maps"))):
            reach()

    def stepping(function):
        def call(*arguments, **options):
            reach()
            return function(*arguments, **options)

        return call

    for name in ("fsync", "copy_file_range", "posix_fallocate", "write"):
        setattr(os, name, stepping(getattr(os, name)))
    sys.addaudithook(audit)
    try:
        write_model(model, target, weights=policy)
    except GraphpassError:
        os._exit(1)
    except BaseException:  # noqa: BLE001 - this process must not go on as the test
        traceback.print_exc()
        os._exit(2)
    os._exit(3 if count > step else 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), sys.argv[6])
