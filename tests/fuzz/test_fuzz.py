"""Damaged files: read, or refused in words; no crash, no hang, no traceback, no memory without bounds.

``GRAPHPASS_FUZZ_EXAMPLES=20000`` looks at more than the 150 that are looked at by default, and at others each time.
"""

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from fuzz import read_files
from fuzz.mutations import MUTATIONS, damaged_bytes
from hypothesis import HealthCheck, given, settings, strategies as st
from support.models import fixtures
from support.quick_cases import model_files

FILES = [file for file in model_files() if (fixtures() / file).stat().st_size < 1_500_000]
EXAMPLES = int(os.environ.get("GRAPHPASS_FUZZ_EXAMPLES", "150"))

#: Exit codes that tell of a bad model, of none, and of one that differs.
UNDERSTOOD = {0, 1, 2, 3, 4}

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")]


@pytest.fixture(scope="module")
def look(tmp_path_factory):
    """Look at files in a process of its own; gives the exit code and what was said."""
    program = [sys.executable, read_files.__file__]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    memory = {"XDG_CACHE_HOME": str(tmp_path_factory.mktemp("digests"))}
    with subprocess.Popen(program, **pipes, env=os.environ | memory) as process:

        def ask(*arguments: str | Path) -> tuple[int, str]:
            process.stdin.write("\t".join(map(str, arguments)) + "\n")
            code, said = process.stdout.readline().rstrip("\n").split("\t", 1)
            return int(code), said

        yield ask
        process.stdin.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("damaged")


def test_whole_files_are_read(look):
    for file in FILES[:: len(FILES) // 8]:
        code, said = look("inspect", fixtures() / file)
        assert code == 0, said


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize="GRAPHPASS_FUZZ_EXAMPLES" not in os.environ,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data(), random=st.randoms(use_true_random=False))
def test_damaged_files_are_read_or_refused(look, folder, data, random: Random):
    file = fixtures() / data.draw(st.sampled_from(FILES), "file")
    mutation = data.draw(st.sampled_from(MUTATIONS[file.suffix]), "mutation")
    for old in folder.iterdir():
        old.unlink()
    (folder / file.name).write_bytes(mutation(file.read_bytes(), random))
    for beside in file.parent.iterdir():
        if beside.suffix in {".bin", ".data"} and "token" not in beside.name:
            content = beside.read_bytes()
            damaged = data.draw(st.integers(0, 9), "damage the weights") == 9
            (folder / beside.name).write_bytes(damaged_bytes(content, random) if damaged else content)
    damaged = folder / file.name
    ways = [("inspect", damaged), ("diff", file, damaged), ("diff", "--format", "html", damaged, file)]
    ways.append(("diff", "--textconv", damaged))
    code, said = look(*data.draw(st.sampled_from(ways), "way"))
    assert code in UNDERSTOOD, said
