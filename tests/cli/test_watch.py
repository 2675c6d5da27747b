"""See what a person sees while graphpass works, on a terminal and in a pipe."""

import io
import os
import pty
import re
import subprocess
import sys
import time

import pytest
from support.commands import in_process
from support.models import export

from graphpass.cli import console
from graphpass.cli.main import main
from graphpass.cli.watch import Lines, LiveLine, watcher
from graphpass.progress import Stage

_RUN = ["run", str(export("llama", "onnx")), "--pipeline", "to-openvino,make-stateful", "--no-verify"]
_LLAMA, _STATEFUL = export("llama", "onnx"), export("llama", "ov-stateful")
_CODES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class _Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("seconds", "counts", "line"),
    [
        (100, {"unit": "steps", "total": 60, "done": 60}, "verifying: 60 steps, T s\n"),
        (100, {"unit": "steps", "total": 60, "done": 7}, "verifying: 7 of 60 steps, T s\n"),
        (100, {"unit": "bytes", "total": 2 * 10**9, "done": 5 * 10**8}, "verifying: 500 MB of 2 GB, T s\n"),
        (100, {}, "verifying: T s\n"),
        (0, {}, ""),
    ],
)
def test_a_pipe_gets_a_line_for_each_long_stage(seconds, counts, line, capsys):
    lines, stage = Lines(), Stage("verifying", started=time.perf_counter() - seconds, **counts)
    lines.began(stage)
    assert capsys.readouterr().err == ""
    lines.ended(stage)
    assert _timeless(capsys.readouterr().err) == line


def _timeless(text):
    return re.sub(r"\d+\.\d s(, \S+ [MG]B)?", "T s", text)


def test_a_pipe_gets_a_line_every_ten_seconds_of_a_stage(capsys):
    lines, stage = Lines(), Stage("verifying", "steps", 60, 15, started=time.perf_counter() - 30)
    lines.began(stage)
    lines.moved(stage)
    lines.moved(stage)
    assert re.fullmatch(
        r"verifying: 15 of 60 steps \(25%\), 9\d s left, 30\.\d s, \S+ [MG]B\n", capsys.readouterr().err
    )


def test_verbose_prints_short_stages_too(tmp_path, capfd):
    assert main(["-v", *_RUN, "-o", str(tmp_path / "m.xml")]) == 0
    stages = _timeless(capfd.readouterr().err).splitlines()
    assert stages[0] == f"reading {export('llama', 'onnx') / 'model.onnx'}: T s"
    assert "running the pipeline: 2 passes, T s" in stages
    assert "writing m.xml: T s" in stages


def test_quiet_prints_no_progress(tmp_path, capfd):
    assert main(["-q", *_RUN, "-o", str(tmp_path / "m.xml")]) == 0
    assert capfd.readouterr().err == ""


def test_a_live_line_needs_a_capable_terminal(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(watcher(_Terminal(), verbose=False), LiveLine)
    assert isinstance(watcher(_Terminal(), verbose=True), Lines)
    assert isinstance(watcher(io.StringIO(), verbose=False), Lines)
    monkeypatch.setenv("CI", "true")
    assert isinstance(watcher(_Terminal(), verbose=False), Lines)
    monkeypatch.delenv("CI")
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(watcher(_Terminal(), verbose=False), Lines)


def test_a_live_line_shows_stages_and_progress_and_is_erased(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    stream = _Terminal()
    live = LiveLine(stream)
    outer, inner = Stage("running the pipeline", "passes", 9, 2, "fuse-attention"), Stage("comparing")
    live.began(outer)
    live.draw()
    live.began(inner)
    inner.unit, inner.total, inner.done = "steps", 40, 10
    live.moved(inner)
    live.began(deeper := Stage("reading"))
    live.ended(deeper)
    live.ended(inner)
    live.ended(outer)
    shown = _CODES.sub("", stream.getvalue())
    assert re.search(r"running the pipeline fuse-attention .* 2 of 9 passes \(22%\) 0:00:00 -:--:-- \S+ [MG]B", shown)
    assert re.search(r"comparing .* 10 of 40 steps \(25%\)", shown)
    assert stream.getvalue().rstrip("\r").endswith("\x1b[2K\x1b[?25h")  # an empty line, and the cursor again


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_a_live_line_fits_any_width(monkeypatch, columns):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = _Terminal()
    live = LiveLine(stream)
    live.began(stage := Stage(f"reading {'folder/' * 12}[red]model.onnx", "bytes", 10**9, 25 * 10**7))
    live.draw()
    live.ended(stage)
    lines = _CODES.sub("", stream.getvalue()).replace("\r", "\n").splitlines()
    assert max(map(len, lines)) <= columns
    if columns >= 80:
        assert "(25%)" in "".join(lines)


def test_a_short_stage_is_not_drawn(monkeypatch):
    stream = _Terminal()
    live = LiveLine(stream)
    live.began(stage := Stage("reading"))
    live.ended(stage)
    live.draw()  # as a timer that fired at the same time
    assert stream.getvalue() == ""


def test_progress_is_not_written_to_stdout(tmp_path):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "graphpass.cli", "inspect", str(export("llama", "onnx"))]
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=environment) as running:
        os.close(theirs)
        result = running.stdout.read().decode()
    os.close(ours)
    assert running.returncode == 0
    assert "\x1b" not in result
    assert "kind kv" in result


def test_time_passes_separates_passes_from_analyses(tmp_path, capfd):
    done = in_process(capfd, *_RUN, "-o", tmp_path / "m.xml", "--time-passes")
    rows = [line.split() for line in done.out.partition("  kind ")[2].splitlines()[1:] if line]
    table = {(row[0], row[1]): row[2:] for row in rows if row[0] in {"pass", "analysis"}}
    assert [name for kind, name in table if kind == "pass"] == ["to-openvino", "make-stateful"]
    assert table["analysis", "analysis.caches.inventory.analyze"][1:3] == ["s", "1"]
    assert table["pass", "make-stateful"][-1] in {"MB", "GB"}
    assert "  kind " not in in_process(capfd, *_RUN, "-o", tmp_path / "n.xml").out


class _Outermost:
    """Follows the stage around all others."""

    def __init__(self):
        self.stages, self.totals = [], []

    def began(self, stage):
        self.stages.append(stage)
        self.totals.append(self.stages[0].total)

    def moved(self, stage):
        assert stage.done <= stage.total

    def ended(self, stage):
        pass


@pytest.mark.parametrize(
    "command",
    [
        ["inspect", _LLAMA],
        ["why", _LLAMA, "past_key_values.0.key"],
        ["print", _LLAMA],
        ["diff", _LLAMA, _LLAMA],
        ["check", _STATEFUL, "--target", "cpu"],
        ["verify", _STATEFUL, _STATEFUL, "--steps", "1"],
    ],
    ids=lambda command: command[0],
)
def test_the_stages_of_a_command_are_counted_from_the_start(monkeypatch, command, capfd):
    outermost = _Outermost()
    monkeypatch.setattr(console, "watcher", lambda *_, **__: outermost)
    assert in_process(capfd, *command).code == 0
    whole, first, *_ = outermost.stages
    assert first.text.startswith("reading ")
    assert outermost.totals[1] == whole.total == whole.done
    assert whole.unit == "stages"


def test_the_stages_of_a_split_are_counted(monkeypatch, tmp_path, capfd):
    outermost = _Outermost()
    monkeypatch.setattr(console, "watcher", lambda *_, **__: outermost)
    sizes = ["--prompt", "8", "--capacity", "16"]
    assert in_process(capfd, "split", _STATEFUL, tmp_path / "pair", *sizes, "--no-verify").code == 0
    assert outermost.stages[0].done == outermost.stages[0].total > 2


def test_an_interrupt_before_the_work_exits_with_130():
    """Interrupt the program at its first import, long before a command could answer."""
    script = (
        "import builtins, os, signal, sys\nload = builtins.__import__\n"
        "def interrupted(name, *rest):\n"
        "    if name == 'click':\n        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return load(name, *rest)\n"
        "builtins.__import__ = interrupted\nimport graphpass.cli.__main__ as m\nm.run()\n"
    )
    done = subprocess.run([sys.executable, "-c", script, "--help"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def _interrupted(script, out):
    """Run a script that interrupts itself; it leaves nothing. Return what it prints on stderr."""
    program = [sys.executable, "-c", script, *_RUN, "-o", str(out / "m.xml")]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, list(out.iterdir())) == (130, "", [])
    return done.stderr


def test_an_interrupt_in_an_import_waits_for_its_end(tmp_path):
    """Interrupt as a library in C++ is imported, which would crash, or report something else."""
    script = (
        "import os, signal, sys\nfrom graphpass.cli.__main__ import run\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'openvino._pyopenvino':\n            os.kill(os.getpid(), signal.SIGINT)\n"
        "            print('imported on', file=sys.stderr)\n"
        "sys.meta_path.insert(0, Interrupt())\nrun()\n"
    )
    assert _interrupted(script, tmp_path) == "imported on\ninterrupted\n"


def test_an_interrupt_in_a_callback_of_a_weak_reference_is_raised_after_it(tmp_path):
    """Interrupt where Python prints what is raised, and goes on."""
    script = (
        "import os, signal, sys, weakref\nimport graphpass.io as io\nfrom graphpass.cli.__main__ import run\n"
        "check = io._check_written\n"
        "class Thing: pass\n"
        "def interrupt(*given):\n"
        "    thing = Thing()\n"
        "    reference = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGINT))\n"
        "    del thing\n"
        "    print('went on', file=sys.stderr)\n"
        "    while True: pass\n"
        "io._check_written = interrupt\nrun()\n"
    )
    assert _interrupted(script, tmp_path) == "went on\ninterrupted\n"


def test_an_interrupt_of_the_work_exits_with_130_and_leaves_nothing(tmp_path):
    """Interrupt while weights are written: the place of the result stays as it was."""
    script = (
        "import os, signal\nimport graphpass.io as io\nfrom graphpass.cli.__main__ import run\n"
        "check = io._check_written\n"
        "io._check_written = lambda *given: (os.kill(os.getpid(), signal.SIGINT), check(*given))\nrun()\n"
    )
    assert _interrupted(script, tmp_path) == "interrupted\n"


def test_interrupts_are_ignored_when_all_is_done():
    script = (
        "import atexit, os, signal\nfrom graphpass.cli.__main__ import run\n"
        "atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))\nrun()\n"
    )
    done = subprocess.run([sys.executable, "-c", script, "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
