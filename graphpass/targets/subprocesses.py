"""Trying a runtime in a process of its own, since what is tried may end it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphpass.io import write_model
from graphpass.targets.finding import Observation

if TYPE_CHECKING:
    from graphpass.dialects.openvino.model import OpenVINOModel

__all__ = ["Finished", "run_worker"]

#: Seconds after which a runtime counts as hanging.
_LIMIT = 1800


@dataclass(frozen=True, slots=True)
class Finished:
    """What a worker left.

    Attributes:
        found: What it wrote.
        crashed: How it ended, where it wrote nothing.
    """

    found: dict[str, Any] = field(default_factory=dict)
    crashed: str | None = None

    def refusal(self, tried: str) -> Observation | None:
        """What is to be said where the runtime failed; ``None`` where it did not.

        Args:
            tried: What was done, for people.
        """
        if self.crashed is not None:
            return Observation(tried, refused=self.crashed)
        if "refused" in self.found:
            return Observation(self.with_version(tried), refused=self.found["refused"])
        return None

    def with_version(self, tried: str) -> str:
        """``tried``, and with which version of OpenVINO."""
        return f"{tried}, openvino {self.found['version']}"


def run_worker(code: str, model: OpenVINOModel, environment: Path | None = None) -> Finished:
    """Run ``code`` with the paths of the model and of the JSON file to write.

    Args:
        code: Python that needs nothing but openvino and what comes with it.
        model: The model; it is saved for the worker where it was edited or never had a file.
        environment: A folder with ``venv`` and ``env.sh`` to run it in; else this Python.
    """
    with tempfile.TemporaryDirectory() as scratch:
        file = model.path
        if model.edited or file is None:
            file = Path(scratch, "model.xml")
            write_model(model, file)
        answer = Path(scratch, "answer.json")
        arguments = ["-c", code, str(file.resolve()), str(answer)]
        if environment is None:
            command = [sys.executable, *arguments]
        else:
            # What it sets has to be there before the process starts.
            script = '. "$0/env.sh" && exec "$0/venv/bin/python" "$@"'
            command = ["/bin/sh", "-c", script, str(environment.resolve()), *arguments]
        try:
            done = subprocess.run(  # noqa: S603 - this Python, or the one that the user named
                command, capture_output=True, text=True, check=False, timeout=_LIMIT, env=_environment(environment)
            )
        except subprocess.TimeoutExpired:
            return Finished(crashed=f"it did not answer within {_LIMIT} seconds")
        if not answer.exists():
            words = done.stderr.strip().splitlines()
            ended = f"the process ended with {done.returncode}"
            return Finished(crashed=f"{ended}: {words[-1]}" if words else ended)
        return Finished(json.loads(answer.read_text()))


def _environment(environment: Path | None) -> dict[str, str]:
    given = dict(os.environ)
    if environment is not None:
        # Another Python's packages are none of its.
        given.pop("PYTHONPATH", None)
    return given
