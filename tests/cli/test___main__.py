"""The program ends with the exit code of its command, also when it is interrupted."""

import sys

import pytest

from graphpass.cli import __main__ as program, main


@pytest.mark.parametrize("code", [0, 2])
def test_the_exit_code_is_the_command_s(monkeypatch, code):
    monkeypatch.setattr(main, "main", lambda **given: code if given == {"in_child": True} else 99)
    for name in ("leave_at_once", "raise_interrupts", "ignore_interrupts"):
        monkeypatch.setattr(program, name, lambda: None)
    with pytest.raises(SystemExit) as ended:
        program.run()
    assert ended.value.code == code


def test_an_interrupt_is_one_line(monkeypatch, capsys):
    def interrupted(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "main", interrupted)
    for name in ("leave_at_once", "raise_interrupts", "ignore_interrupts"):
        monkeypatch.setattr(program, name, lambda: None)
    with pytest.raises(SystemExit) as ended:
        program.run()
    assert ended.value.code == program.INTERRUPTED
    assert capsys.readouterr().err == "interrupted\n"
    assert sys.exc_info() == (None, None, None)
