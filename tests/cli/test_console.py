"""Output of commands: the stream of each message, names with newlines, and formats."""

import json

import click
import pytest
from click.testing import CliRunner

from graphpass.cli.console import Console, ask_for_model, console_command, format_option
from graphpass.errors import UsageError


def test_results_are_on_stdout_and_messages_on_stderr(capsys):
    console = Console()
    console.result("a result")
    console.note("a note")
    console.detail("a detail")
    out, err = capsys.readouterr()
    assert (out, err) == ("a result\n", "a note\na detail\n")


def test_quiet_hides_notes_but_not_details(capsys):
    console = Console(quiet=True)
    console.note("a note")
    console.detail("a detail")
    assert capsys.readouterr().err == "a detail\n"


def test_names_with_newlines_cannot_imitate_messages(capsys):
    Console().error(UsageError("GP201", "the node a\nerror: GP999: b", "try\nhint: c"))
    lines = click.unstyle(capsys.readouterr().err).splitlines()
    assert lines == ["error: GP201: the node a", "  error: GP999: b", "hint: try", "  hint: c"]


@pytest.mark.parametrize(("form", "shown"), [("text", False), ("json", True)])
def test_reports_are_computed_in_one_format(capsys, form, shown):
    called = []
    Console().report(form, lambda: called.append("text") or "words", lambda: called.append("json") or {"n": 1})
    out = capsys.readouterr().out
    assert called == [form]
    assert out == "words\n" if not shown else json.loads(out)["n"] == 1


@pytest.mark.parametrize("in_json", [True, False])
def test_errors_are_json_in_place_of_a_result(capsys, in_json):
    Console(in_json=in_json).failed("GP201", "a message", None, 2)
    out = capsys.readouterr().out
    if in_json:
        assert json.loads(out)["error"] == {"id": "GP201", "message": "a message", "hint": None, "exit_code": 2}
    else:
        assert not out


def test_a_model_is_asked_for_on_terminals_alone(monkeypatch, tmp_path):
    assert ask_for_model(tmp_path) is None
    for name in ("a.onnx", "b.onnx"):
        (tmp_path / name).write_bytes(b"")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr(click, "prompt", lambda question, **options: options["type"].choices[1])
    assert ask_for_model(tmp_path) == tmp_path / "b.onnx"


@console_command("sample")
@format_option("text", "json")
def sample(console, form):
    console.note(f"{form} {console.quiet} {console.verbose}")


@pytest.mark.parametrize(
    ("arguments", "code", "output"),
    [
        ([], 0, "text False False"),
        (["--format", "json", "-v"], 0, "json False True"),
        (["-q"], 0, ""),
        (["-q", "-v"], 2, "--quiet and --verbose exclude each other"),
        (["--format", "xml"], 2, "'xml' is not one of 'text', 'json'"),
    ],
)
def test_options_of_each_command(arguments, code, output):
    result = CliRunner().invoke(sample, arguments, obj=Console())
    assert result.exit_code == code
    assert output in result.output
