"""Shells complete commands, options, targets and passes; the program has one spelling of each option."""

import re
import subprocess
import sys

import pytest
from support.commands import in_process, in_subprocess
from support.models import export


def completed(*words, shell="bash"):
    """Return the completions of the last word."""
    asked = {"_GRAPHPASS_COMPLETE": f"{shell}_complete", "COMP_WORDS": " ".join(("graphpass", *words))}
    done = in_subprocess(environment=asked | {"COMP_CWORD": str(len(words))})
    return [line.partition(",")[2] for line in done.out.splitlines()]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("con",), ["convert"]),
        (("convert", "--all"), ["--allow-unfused", "--allow", "--all-layers"]),
        (("convert", "m", "--target", "ort-"), ["ort-genai"]),
        (("run", "-p", "to-openvino,make-statef"), ["to-openvino,make-stateful"]),
        (("explain", "GP50"), ["GP501", "GP502", "GP503", "GP504", "GP505"]),
    ],
    ids=lambda one: one[-1],
)
def test_words_are_completed(words, found):
    assert sorted(completed(*words)) == sorted(found)


@pytest.mark.parametrize(("shell", "word"), [("bash", "complete -o"), ("zsh", "compdef"), ("fish", "complete --no")])
def test_each_shell_gets_its_script(capfd, monkeypatch, shell, word):
    # click asks the installed bash for its version.
    done = in_process(capfd, "completion", shell)
    assert (done.code, done.err) == (0, "")
    assert word in done.out
    assert f"_GRAPHPASS_COMPLETE={shell}_complete" in done.out


def test_the_package_is_a_program():
    done = subprocess.run([sys.executable, "-m", "graphpass", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("graphpass ")


def test_the_output_is_an_argument_or_an_option(tmp_path, capfd):
    given = ["run", export("llama", "onnx"), "-p", "fuse-functions", "-q"]
    assert in_process(capfd, *given, tmp_path / "one").code == 0
    assert in_process(capfd, *given, "-o", tmp_path / "two").code == 0
    assert (tmp_path / "one" / "model.onnx").read_bytes() == (tmp_path / "two" / "model.onnx").read_bytes()
    twice = in_process(capfd, *given, tmp_path / "three", "-o", tmp_path / "four")
    assert (twice.code, "the output is given twice" in twice.err) == (2, True)
    never = in_process(capfd, *given)
    assert (never.code, "Missing argument 'OUTPUT', or option '-o'" in never.err) == (2, True)


@pytest.mark.parametrize("arguments", [("passes",), ("targets",), ("explain", "make-stateful"), ("explain", "GP203")])
def test_terminal_output_has_no_markup(capfd, arguments):
    out = in_process(capfd, *arguments).out
    assert "``" not in out
    assert ":class:" not in out
    assert not re.findall(r"^ *(?:option )?[a-z]+_[a-z_]+:", out, re.MULTILINE)
    assert "Options:" not in out
