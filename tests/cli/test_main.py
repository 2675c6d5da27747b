import importlib
import os
import re
import shutil
import subprocess
import sys

import pytest
from support.commands import in_process, in_subprocess
from support.models import export

import graphpass
from graphpass.cli.main import COMMANDS
from graphpass.errors import GraphpassError

HEAVY = ("numpy", "onnx", "onnxruntime", "onnx_graphsurgeon", "openvino", "networkx")


def test_help_imports_nothing_heavy():
    program = (
        "import sys\nfrom graphpass.cli.main import main\n"
        f"for arguments in {[[], *[[name] for name in COMMANDS]]!r}:\n"
        "    assert main([*arguments, '--help']) == 0\n"
        f"    heavy = [name for name in {HEAVY!r} if name in sys.modules]\n    assert not heavy, (arguments, heavy)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.count("Usage: graphpass") == len(COMMANDS) + 1
    assert done.stderr == ""


def test_help_imports_little_of_graphpass():
    # Its time is what it imports: 0.1 s for these, 0.3 s once the public names load at import of graphpass.
    program = (
        "import sys\nfrom graphpass.cli.main import main\nmain(['--help'])\n"
        "print(*sorted(name for name in sys.modules if name.startswith('graphpass')), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    wanted = ["graphpass", "graphpass.cli", "graphpass.cli.console", "graphpass.cli.interrupts"]
    assert done.stderr.split() == [
        *wanted,
        "graphpass.cli.limits",
        "graphpass.cli.main",
        "graphpass.cli.watch",
        "graphpass.errors",
        "graphpass.jobs",
        "graphpass.jobs.watch",
        "graphpass.printable",
        "graphpass.progress",
    ]


def test_public_names_load():
    missing = [name for name in graphpass.__all__ if not hasattr(graphpass, name)]
    assert graphpass.__all__
    assert not missing
    assert not hasattr(graphpass, "nothing")


def test_help_of_one_command_imports_no_other():
    program = (
        "import sys\nfrom graphpass.cli.main import main\nmain(['inspect', '--help'])\n"
        "assert 'graphpass.cli.inspect' in sys.modules and 'graphpass.cli.convert' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_of_commands_is_true(name):
    command = importlib.import_module(f"graphpass.cli.{name.replace('-', '_')}").command
    assert command.name == name
    assert command.help.partition("\n")[0] == COMMANDS[name]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("run", '               name = "make-stateful"'),
        ("diff", '    git config diff.graphpass.textconv "graphpass diff --textconv"'),
        ("explain", "  graphpass explain GP203"),
    ],
)
def test_examples_in_help_keep_their_lines(capfd, name, line):
    done = in_process(capfd, name, "--help")
    assert "\\b" not in done.out
    assert line in done.out.splitlines()


def test_help_names_every_command(capfd):
    done = in_process(capfd, "--help")
    assert done.code == 0
    assert [name for name in COMMANDS if re.search(rf"^  {name} ", done.out, re.MULTILINE)] == list(COMMANDS)


def test_the_version_is_printed(capfd):
    assert in_process(capfd, "--version") == (0, "graphpass 0.2.0\n", "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["inspekt"], "Did you mean inspect?"),
        (["inspect"], "Missing argument 'MODEL'"),
        (["inspect", "x.onnx", "--formt", "json"], "--format"),
        (["convert", "x.onnx", "-o", "out"], "Missing option '--target'"),
        (["verify", "a", "b", "--prompt-ids", "1,x"], "is not a list of token ids"),
        (["-q", "inspect", "x.onnx", "-v"], "--quiet and --verbose exclude each other"),
        ([], "Usage: graphpass"),
    ],
)
def test_usage_errors_exit_with_2(capfd, arguments, words):
    done = in_process(capfd, *arguments)
    assert done.code == 2
    assert done.out == ""
    assert words in done.err


def test_errors_are_one_message_and_a_hint(capfd, tmp_path):
    (tmp_path / "model.bin").touch()
    done = in_process(capfd, "inspect", tmp_path / "model.bin")
    assert done.code == 3
    assert done.out == ""
    assert done.err == (
        f"error: GP102: {tmp_path}/model.bin is neither an .onnx nor an .xml file\nhint: name the model file itself\n"
    )


def test_verbose_shows_the_traceback(capfd):
    done = in_process(capfd, "inspect", "missing.onnx", "--verbose")
    assert done.code == 3
    assert done.err.startswith("Traceback")
    assert "error: GP101: missing.onnx does not exist\nhint: " in done.err


def raising(monkeypatch, error):
    def fail(path):
        raise error

    monkeypatch.setattr("graphpass.jobs.reading.find_model", fail)


def test_an_internal_error_is_one_line_with_a_hint(capfd, monkeypatch):
    raising(monkeypatch, ZeroDivisionError("by zero\nand more"))
    done = in_process(capfd, "inspect", "x.onnx")
    assert done.code == 70
    first, second = done.err.splitlines()
    assert first == "internal error: ZeroDivisionError: by zero and more"
    assert "report it" in second
    done = in_process(capfd, "--verbose", "inspect", "x.onnx")
    assert done.code == 70
    assert "Traceback" in done.err


def test_too_little_memory_is_not_reported_as_a_bug(capfd, monkeypatch):
    raising(monkeypatch, MemoryError("Unable to allocate 114. PiB"))
    done = in_process(capfd, "inspect", "x.onnx")
    assert done.code == 4
    assert done.err.startswith("error: GP395: there is not enough memory: Unable to allocate 114. PiB\nhint: ")


def test_the_exit_code_is_the_error_s(capfd, monkeypatch):
    for error_class in GraphpassError.__subclasses__():
        raising(monkeypatch, error_class("GP999", "no"))
        done = in_process(capfd, "inspect", "x.onnx")
        assert done.code == error_class.exit_code
        assert done.err == "error: GP999: no\n"


def test_an_interrupt_in_a_command(capfd, monkeypatch):
    raising(monkeypatch, KeyboardInterrupt())
    done = in_process(capfd, "inspect", "x.onnx")
    assert done.code == 130
    assert "Traceback" not in done.err


#: Runs the command line and interrupts it right after its n-th change of a file.
_INTERRUPTING = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
left = int(sys.argv[1])
def interrupting(change):
    def wrapper(*arguments, **options):
        global left
        result = change(*arguments, **options)
        left -= 1
        if not left:
            signal.raise_signal(signal.SIGINT)
        return result
    return wrapper
for name in ("mkdir", "fsync"):
    setattr(os, name, interrupting(getattr(os, name)))
from graphpass.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("moment", [*(pytest.param(n, marks=pytest.mark.slow) for n in (1, 3, 4)), 2, 5])
def test_an_interrupted_process_leaves_nothing(tmp_path, moment):
    command = ["convert", export("llama", "onnx"), "--target", "cpu", "-o", tmp_path / "out"]
    process = subprocess.run(
        [sys.executable, "-c", _INTERRUPTING, str(moment), *command], capture_output=True, text=True, check=False
    )
    assert process.returncode == 130
    assert process.stderr.splitlines()[-1] == "interrupted"
    assert not any(tmp_path.iterdir())


@pytest.mark.skipif(os.name != "posix", reason="needs a shell's pipe")
def test_a_closed_pipe_is_not_an_error():
    command = f"{sys.executable} -m graphpass.cli --quiet inspect {export('llama', 'onnx')} --format json"
    shell = ["bash", "-c", f"{command} | true; echo ${{PIPESTATUS[0]}}"]
    done = subprocess.run(shell, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.strip() == "141"


@pytest.mark.sampled(2)
@pytest.mark.skipif(os.name != "posix", reason="needs a shell's redirections")
@pytest.mark.parametrize(("stream", "code"), [("<&-", 0), (">&-", 0), ("2>&-", 0), ("> /dev/full", 6)])
def test_closed_or_full_streams(stream, code):
    if "/dev/full" in stream and not os.path.exists("/dev/full"):
        pytest.skip("only Linux has a device that is full")
    shell = ["bash", "-c", f"{sys.executable} -m graphpass.cli passes {stream}"]
    done = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert done.returncode == code
    if code:
        assert done.stderr == (
            "error: GP501: cannot print the result: No space left on device\n"
            "hint: free space, or redirect the output elsewhere\n"
        )
    else:
        assert done.stderr == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is full")
def test_the_exit_code_stays_if_the_stream_is_full():
    shell = ["bash", "-c", f"{sys.executable} -m graphpass.cli inspect missing.onnx 2> /dev/full"]
    assert subprocess.run(shell, capture_output=True, check=False).returncode == 3


@pytest.mark.skipif(os.name != "posix", reason="needs a shell's redirections")
def test_no_question_is_asked_without_a_terminal(tmp_path):
    for name in ("a.onnx", "b.onnx"):
        (tmp_path / name).touch()
    shell = ["bash", "-c", f"{sys.executable} -m graphpass.cli inspect {tmp_path} <&-"]
    done = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: GP201: ")


def test_names_outside_of_a_stream_s_encoding_are_escaped(tmp_path):
    shutil.copytree(export("llama", "onnx"), tmp_path / "模")
    done = in_subprocess("inspect", tmp_path / "模", environment={"PYTHONIOENCODING": "latin1"})
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{tmp_path}/\\u6a21/model.onnx: ONNX")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names are text")
def test_undecodable_names_are_escaped(tmp_path):
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    shutil.copytree(export("llama", "onnx"), odd)
    environment = {"PYTHONIOENCODING": "utf-8:strict"}
    done = in_subprocess("inspect", odd, "--html", tmp_path / "report.html", environment=environment)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{tmp_path}/\\udcff/model.onnx: ONNX")
    assert "/\\udcff: caches</title>" in (tmp_path / "report.html").read_text(encoding="utf-8")


def in_a_terminal(arguments, environment=None):
    """What a command prints when stdout and stderr are a terminal."""
    import pty

    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "graphpass.cli", *arguments],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=os.environ | (environment or {}),
        close_fds=True,
    )
    os.close(follower)
    output = b""
    while True:
        try:
            read = os.read(leader, 4096)
        except OSError:
            break
        output += read
        if not read:
            break
    os.close(leader)
    return process.wait(), output.decode()


@pytest.mark.skipif(sys.platform != "linux", reason="pseudo terminals end in their own ways elsewhere")
def test_colour_follows_terminal_and_environment():
    environment = {"TERM": "xterm", "NO_COLOR": ""}
    assert "\x1b[" in in_a_terminal(["inspect", "missing.onnx"], environment)[1]
    assert "\x1b[" not in in_a_terminal(["inspect", "missing.onnx"], environment | {"NO_COLOR": "1"})[1]
    assert "\x1b[" not in in_subprocess("inspect", "missing.onnx", environment=environment).err
