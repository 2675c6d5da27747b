"""Running the command line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple


class Finished(NamedTuple):
    """What a command line left; ``err`` is without progress, which depends on how busy the machine is."""

    code: int
    out: str
    err: str


def in_process(capfd: Any, *arguments: str | Path) -> Finished:
    """Call `graphpass.cli.main.main`."""
    from graphpass.cli.main import main

    code = main([str(argument) for argument in arguments])
    captured = capfd.readouterr()
    return Finished(code, captured.out, _without_progress(captured.err))


def in_subprocess(*arguments: str | Path, environment: dict[str, str] | None = None, text: str = "") -> Finished:
    """Run ``python -m graphpass.cli`` as a user does."""
    command = [sys.executable, "-m", "graphpass.cli", *map(str, arguments)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        input=text,
        env=os.environ | (environment or {}),
        check=False,
        timeout=300,
    )
    return Finished(done.returncode, done.stdout, _without_progress(done.stderr))


def _without_progress(errors: str) -> str:
    return re.sub(r"^[^\n]*: (?:[^\n]*, )?\d+\.\d s(?:, [\d.e+]+ [KMG]B)?\n", "", errors, flags=re.MULTILINE)
