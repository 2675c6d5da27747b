"""Install an sdist into a new environment by the README's command, and run what the pages show there.

    python tests/installed.py dist/graphpass-0.2.0.tar.gz

Runs on any Python that graphpass supports, without the libraries of the tests.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path


def main(sdist: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        with tarfile.open(sdist) as archive:
            archive.extractall(place, filter="data")
        (source,) = (folder for folder in place.iterdir() if folder.is_dir())
        venv.create(place / "venv", with_pip=True)
        readme = (source / "README.md").read_text("utf-8")
        install = next(line.strip() for line in readme.splitlines() if line.strip().startswith("pip install"))
        run(place, install, source)
        for room in ("graphpass", "passes", "cli"):  # the installed package must not find its source
            (source / room).rename(source / f"{room}-source")
        run(place, "python fixtures/archive.py unpack", source)
        run(place, f"python -c {shlex.quote(_UNPACK_VISION)}", source)
        run(place, f"python -c {shlex.quote(_IMPORT_ALL)}", source)
        # The newest ONNX Runtime for Python 3.10 is 1.23, which has no caches in integers: GP321 says so.
        older = sys.version_info < (3, 11)
        for page in sorted([source / "README.md", *(source / "docs").glob("*.md")]):
            text = page.read_text("utf-8")
            found = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
            if blocks := [block for block in found if not _OPTIONAL.search(block)]:
                (source / "blocks.py").write_text("\n".join(blocks), "utf-8")
                run(place, "python blocks.py", source)
            for command, shown in re.findall(r"^```console\n\$ (graphpass .*?)\n(.*?)^```", text, re.DOTALL | re.M):
                run(place, command, source, 1 if "does not hold" in shown else 0, refusable=older)
        run(place, "graphpass ci docs/example", source)


#: Packages that `pip install .` leaves out; the tests of this package run what pages show of them.
_OPTIONAL = re.compile(r"^import (pytest|openvino_genai|onnxruntime_genai)$", re.MULTILINE)

_UNPACK_VISION = """
import sys
from pathlib import Path
sys.path.insert(0, "fixtures")
from archive import unpack
unpack(Path("build/vision"), Path("fixtures/vision.tar.xz"))
"""

_IMPORT_ALL = """
import importlib, pkgutil, graphpass
optional = {"distributed", "fsspec", "openvino_genai", "onnxruntime_genai", "pytest"}
for module in pkgutil.walk_packages(graphpass.__path__, "graphpass."):
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        assert error.name in optional, error
"""


def run(place: Path, command: str, folder: Path, expected: int = 0, *, refusable: bool = False) -> None:
    """Run a command with the new environment first on the path, without the results of others."""
    shutil.rmtree(folder / "demo-output", ignore_errors=True)
    print(f"$ {command.splitlines()[0]}", flush=True)
    path = f"{place / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        shlex.split(command),
        cwd=folder,
        env=environment | {"PATH": path},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    sys.stderr.write(done.stderr)
    if refusable and "error: GP321" in done.stderr:
        return
    if done.returncode != expected:
        sys.exit(f"{command}: exit code {done.returncode}, expected {expected}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
