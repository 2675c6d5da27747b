"""Trials of runtimes in a separate process, which they may crash."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphpass.engine.findings import Observation
from graphpass.io import write_model
from graphpass.ir.model import Model
from graphpass.runtime.devices.apart import run_apart
from graphpass.runtime.devices.stand_in import entered

#: Seconds after which a runtime counts as hanging.
_LIMIT = 1800

_BEFORE = """
import json, sys, numpy, openvino
path, where = sys.argv[1:]
core = openvino.Core()
exact = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
# Products of rounded activations in f32, see graphpass.runtime.backends.openvino_request.
exact |= {"LP_TRANSFORMS_MODE": "NO"}
answer = {"version": openvino.__version__.split("-")[0]}

def words(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # Lines with source locations come before the message.
    return next((line for line in lines if not line.startswith(("Exception from ", "Check '"))), lines[-1])
"""

_AFTER = """
try:
    run()
except RuntimeError as error:
    answer["refused"] = words(error)
with open(where, "w") as file:
    json.dump(answer, file)
"""


@dataclass(frozen=True, slots=True)
class Finished:
    """The result of a worker.

    Attributes:
        tried: Description of the trial, with the version of OpenVINO if known.
        answer: The worker's answer; empty if the process ended without one.
        refused: Error of the runtime, or the end of the process; ``None`` if the trial succeeded.
    """

    tried: str
    answer: dict[str, Any] = field(default_factory=dict)
    refused: str | None = None

    @property
    def refusal(self) -> Observation | None:
        """Return the observation of a failed trial; ``None`` if the trial succeeded."""
        return None if self.refused is None else Observation(self.tried, refused=self.refused)


def run_worker(code: str, model: Model, tried: str, environment: Path | None = None) -> Finished:
    """Run ``code`` on a model, in a new process.

    Names that ``code`` may use:

    | name | value |
    | --- | --- |
    | ``path`` | file of the model |
    | ``core`` | an ``openvino.Core`` |
    | ``numpy`` | the module |
    | ``exact`` | options that make the CPU plugin compute in f32 |
    | ``words(error)`` | message of a RuntimeError, without source locations |
    | ``answer`` | a dict of JSON values, to be filled |

    Args:
        code: Python that defines ``run()``, which fills ``answer``; a RuntimeError counts as refusal.
        model: The model; saved for the worker if it was edited or has no file.
        tried: Description of the trial.
        environment: A folder with ``venv`` and ``env.sh`` to run in; ``None`` for this Python.

    Returns:
        The filled ``answer``, or the reason why OpenVINO or the process failed.
    """
    with tempfile.TemporaryDirectory() as scratch:
        file = model.path
        if model.edited or file is None:
            file = Path(scratch, "model.xml")
            write_model(model, file)
        answer = run_python(_BEFORE + code + _AFTER, [str(file.resolve())], environment)
    if isinstance(answer, str):
        return Finished(tried, refused=answer)
    return Finished(f"{tried}, openvino {answer['version']}", answer, answer.get("refused"))


def run_python(code: str, arguments: Sequence[str], environment: Path | None = None) -> dict[str, Any] | str:
    """Run Python in a new process, and return the JSON that it writes.

    Args:
        code: Python that writes JSON to the file named by its last argument.
        arguments: The arguments before the last.
        environment: A folder with ``venv`` and ``env.sh`` to run in; ``None`` for this Python.

    Returns:
        The object; or the reason why the process ended without writing it.
    """
    with tempfile.TemporaryDirectory() as scratch:
        answer = Path(scratch, "answer.json")
        interpreter = [sys.executable] if environment is None else entered(environment)
        command = [*interpreter, "-c", code, *arguments, str(answer)]
        if failure := run_apart(command, answer, _LIMIT):
            return failure
        content: dict[str, Any] = json.loads(answer.read_text())
        return content
