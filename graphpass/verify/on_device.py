"""Compare two models, one on a device or on what stands in for it.

The environment's variables have to be set before a process starts, so the comparison runs in a process of its own.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphpass.errors import GraphpassError, UnsupportedError, UsageError
from graphpass.io import load, write_model
from graphpass.runtime.backends.request import QNN
from graphpass.runtime.devices.apart import run_apart
from graphpass.runtime.devices.stand_in import ENVIRONMENT, stand_in
from graphpass.runtime.devices.webgpu import LONGEST_IN_SOFTWARE, NAME, environment, for_adapter
from graphpass.verify import compare_within
from graphpass.verify.pair import compare_pair, sizes_of

if TYPE_CHECKING:
    from graphpass.ir.model import Model
    from graphpass.verify.comparison import Comparison


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
    # ONNX Runtime and OpenVINO refuse devices of the other.
    if device == NAME and candidate.dialect == "onnx":
        return _compare_on_webgpu(reference, candidate, options)
    place = _stand_in_for(device) if candidate.dialect == "openvino" else None
    if place is None:
        return compare_within(reference, candidate, **options)
    start = ["/bin/sh", "-c", '. "$0/env.sh" && exec "$@"', str(place.resolve())]
    return _apart((reference, candidate), options, str(place), start=start)


def _compare_on_webgpu(reference: Model, candidate: Model, options: dict[str, Any]) -> Comparison:
    """Compare in an environment with an adapter, in f32 if that has no f16."""
    variables = _webgpu(options.get("prompt_ids") or ())
    twin, difference = for_adapter(candidate, is_software=bool(variables))
    comparison = _apart((reference, twin), options, NAME, variables)
    skipped = (f"the candidate's rounding to f16: it ran{difference}",) if difference else ()
    return replace(comparison, skipped=comparison.skipped + skipped)


def compare_pair_on_device(reference: Model, prefill: Model, decode: Model, device: str) -> Comparison:
    """Compare a prefill and a decode model, on a device, with the dynamic model.

    Prompts and steps are those of `compare_pair`.

    Args:
        reference: The model that is right; it runs on the CPU.
        prefill: The model that takes prompts.
        decode: The model that takes one token.
        device: Device of the pair: ``"CPU"``, ``"QNN"`` for ONNX, or one of OpenVINO.

    Raises:
        UsageError: GP240, pairs do not run on this device.
        UnsupportedError: GP321, the device's process ended; GP394, the two are not a pair; or as `compare_pair`.
    """
    if decode.dialect == "onnx" and device not in {"CPU", QNN}:
        message = f"a prefill and a decode model in ONNX are compared on CPU and {QNN}, not on {device!r}"
        raise UsageError("GP240", message, f"take CPU, or {QNN} for Qualcomm's HTP")
    options = {"split": sizes_of(prefill, decode), "device": device}
    return _apart((reference, prefill, decode), options, device)


def _apart(
    models: tuple[Model, ...],
    options: dict[str, Any],
    place: str,
    variables: Mapping[str, str] | None = None,
    start: Sequence[str] = (),
) -> Comparison:
    """Compare in a process of its own, which ``start`` prepares."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        files = tuple(_file(model, scratch / str(number)) for number, model in enumerate(models))
        task, answer = scratch / "task", scratch / "answer"
        task.write_bytes(pickle.dumps((files, options)))
        command = [*start, sys.executable, "-m", __name__, str(task), str(answer)]
        if failure := run_apart(command, answer, None, variables):
            raise UnsupportedError("GP321", f"cannot compare on {place}: {failure}")
        content = pickle.loads(answer.read_bytes())  # noqa: S301 - our own process wrote it
    if isinstance(content, GraphpassError):
        raise content
    result: Comparison = content
    return result


def _webgpu(prompt: Sequence[int]) -> Mapping[str, str]:
    """Return the variables by which ONNX Runtime finds an adapter.

    Raises:
        UnsupportedError: GP321, there is none, or none that takes such a prompt.
    """
    variables = environment()
    if isinstance(variables, str):
        raise UnsupportedError("GP321", f"cannot compare on {NAME}: {variables}")
    if variables and len(prompt) > LONGEST_IN_SOFTWARE:
        reason = f"SwiftShader computes prompts of more than {LONGEST_IN_SOFTWARE} tokens wrongly"
        raise UnsupportedError("GP321", f"cannot compare on {NAME}: {reason}", "take a shorter prompt, or a GPU")
    return variables


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
    files, options = pickle.loads(task.read_bytes())  # noqa: S301 - our own process wrote it
    try:
        compare: Any = compare_pair if "split" in options else compare_within
        result: Comparison | GraphpassError = compare(*map(load, files), **options)
    except GraphpassError as error:
        result = error
    answer.write_bytes(pickle.dumps(result))


if __name__ == "__main__":
    _run(*map(Path, sys.argv[1:]))
    # Intel's OpenCL runtime for CPUs crashes now and then at the end of a process.
    os._exit(0)
