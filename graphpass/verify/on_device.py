"""Compare two models, one on a device or on what stands in for it.

The environment's variables have to be set before a process starts, so the comparison runs in a process of its own.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphpass.errors import GraphpassError, UnsupportedError
from graphpass.io import load, write_model
from graphpass.runtime.devices.apart import run_apart
from graphpass.runtime.devices.stand_in import ENVIRONMENT, stand_in
from graphpass.runtime.devices.webgpu import LONGEST_IN_SOFTWARE, NAME, environment
from graphpass.verify import compare_within

if TYPE_CHECKING:
    from graphpass.ir.model import Model
    from graphpass.verify.comparison import Comparison


@dataclass(frozen=True, slots=True)
class _Task:
    """Describes a comparison to another process.

    Attributes:
        files: Reference and candidate.
        options: Arguments of `graphpass.verify.compare_within` by name.
    """

    files: tuple[Path, Path]
    options: dict[str, Any] = field(default_factory=dict)


def compare_on_device(reference: Model, candidate: Model, device: str, **options: Any) -> Comparison:
    """Compare two models, the candidate on a device.

    Args:
        reference: The model that is right; it runs on the CPU.
        candidate: The model in question.
        device: The OpenVINO device, an environment may stand in for ``"GPU"``, see `stand_in`; or ``"WEBGPU"``, on
            which ONNX Runtime runs.
        options: Further arguments of `graphpass.verify.compare_within`.

    Raises:
        UsageError: GP228, no environment stands in for a GPU; or as `graphpass.verify.compare_within`.
        UnsupportedError: GP321, there is no GPU, or its stand-in ended; or as `graphpass.verify.compare_within`.
    """
    device = NAME if device.upper() == NAME else device
    options["device"] = device
    variables = _webgpu(options.get("prompt_ids") or ()) if device == NAME else {}
    place = _stand_in_for(device)
    if place is None and device != NAME:
        return compare_within(reference, candidate, **options)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        files = _file(reference, scratch / "reference"), _file(candidate, scratch / "candidate")
        task, answer = scratch / "task", scratch / "answer"
        task.write_bytes(pickle.dumps(_Task(files, options)))
        command = [sys.executable, "-m", __name__, str(task), str(answer)]
        if place is not None:
            command = ["/bin/sh", "-c", '. "$0/env.sh" && exec "$@"', str(place.resolve()), *command]
        if failure := run_apart(command, answer, None, variables):
            raise UnsupportedError("GP321", f"cannot compare on {place or device}: {failure}")
        found = pickle.loads(answer.read_bytes())  # noqa: S301 - our own process wrote it
    if isinstance(found, GraphpassError):
        raise found
    result: Comparison = found
    return result


def _webgpu(prompt: Sequence[int]) -> Mapping[str, str]:
    """Return the variables by which ONNX Runtime finds an adapter.

    Raises:
        UnsupportedError: GP321, there is none, or none that takes such a prompt.
    """
    found = environment()
    if isinstance(found, str):
        raise UnsupportedError("GP321", f"cannot compare on {NAME}: {found}")
    if found and len(prompt) > LONGEST_IN_SOFTWARE:
        reason = f"SwiftShader computes prompts of more than {LONGEST_IN_SOFTWARE} tokens wrongly"
        raise UnsupportedError("GP321", f"cannot compare on {NAME}: {reason}", "take a shorter prompt, or a GPU")
    return found


def _stand_in_for(device: str) -> Path | None:
    if not device.startswith("GPU"):
        return None
    from graphpass.runtime.backends.openvino_request import is_there

    if is_there(device):
        return None
    environment = stand_in()
    if environment is None:
        reason = f"there is no {device} here, and {ENVIRONMENT} names no environment that stands in for one"
        raise UnsupportedError("GP321", reason)
    return environment


def _file(model: Model, folder: Path) -> Path:
    if model.path is not None and not model.edited:
        return model.path.resolve()
    folder.mkdir()
    file = folder / ("model.onnx" if model.dialect == "onnx" else "model.xml")
    write_model(model, file)
    return file


def _run(task: Path, answer: Path) -> None:
    """Do the work of the other process."""
    given: _Task = pickle.loads(task.read_bytes())  # noqa: S301 - our own process wrote it
    try:
        reference, candidate = map(load, given.files)
        found: Comparison | GraphpassError = compare_within(reference, candidate, **given.options)
    except GraphpassError as error:
        found = error
    answer.write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    _run(*map(Path, sys.argv[1:]))
    # Intel's OpenCL runtime for CPUs crashes now and then at the end of a process.
    os._exit(0)
