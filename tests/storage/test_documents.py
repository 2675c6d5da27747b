"""Files that have no end are refused: a pipe whose writer never comes, a device of zeros."""

import os
import signal
from pathlib import Path

import pytest
from support.commands import in_process
from support.models import export

from graphpass.artifacts.certificate import check_certificate
from graphpass.artifacts.manifest import damage
from graphpass.engine.pipeline import load_toml
from graphpass.errors import GraphpassError
from graphpass.jobs.foresight import earlier_files
from graphpass.jobs.reduce.bundle import read_case
from graphpass.matrix.baseline import Baseline
from graphpass.matrix.config import load_config
from graphpass.matrix.merging import merged
from graphpass.storage.digests import digest_of_file

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")


@pytest.fixture(autouse=True)
def _ends():
    """A reader that waits fails, and keeps no other test from running."""

    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits for what never comes"))
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe.toml")
    return tmp_path / "pipe.toml"


def _certificate(file):
    check_certificate(file.rename(file.parent / "graphpass.json").parent)


@pytest.mark.parametrize(
    ("read", "error_id"),
    [
        (load_toml, "GP108"),
        (load_config, "GP114"),
        (Baseline.read, "GP235"),
        (lambda file: merged([file]), "GP114"),
        (_certificate, "GP118"),
        (read_case, "GP101"),
    ],
)
def test_a_pipe_is_not_read_as_a_document(pipe, read, error_id):
    with pytest.raises(GraphpassError, match=error_id):
        read(pipe)


def test_a_pipe_is_not_read_as_a_manifest(pipe):
    assert damage(pipe) == "pipe.toml is not a valid manifest of graphpass"
    assert earlier_files(pipe) == (frozenset(), frozenset())
    with pytest.raises(OSError, match="not a regular file"):
        digest_of_file(pipe)


def test_pipes_in_a_configuration_fail_their_cells(pipe, monkeypatch, capfd):
    monkeypatch.chdir(pipe.parent)
    model = f"[[models]]\nname = 'm'\npath = '{export('llama', 'onnx')}'\n"
    Path("graphpass.toml").write_text(f"{model}pipelines = [{{name = 'p', pipeline = '@{pipe.name}'}}]\n")
    done = in_process(capfd, "ci")
    assert (done.code, "GP108" in done.err, "it is not a regular file" in done.err) == (3, True, True)
    Path("graphpass.toml").write_text(f"{model}targets = ['cpu']\n")
    done = in_process(capfd, "ci", "--baseline", pipe.name)
    assert (done.code, "GP235" in done.err) == (2, True)
