"""Compare two models, with the candidate on a device or on a stand-in for it.

Environment variables of runtimes must be set before a process starts, so the comparison runs in a separate process.
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
        reference: The reference model, which runs on the CPU.
        candidate: The candidate model.
        device: The OpenVINO device; an environment may stand in for ``"GPU"``, see `stand_in`. ``"WEBGPU"`` for ONNX
            Runtime's WebGPU execution provider.
        options: Further arguments of `graphpass.verify.compare_within`.

    Returns:
        As `graphpass.verify.compare_within`.

    Raises:
        UsageError: GP228, the stand-in's folder is invalid; or as `graphpass.verify.compare_within`.
        UnsupportedError: GP321, the machine has neither a GPU nor a stand-in, or the process ended; or as
            `graphpass.verify.compare_within`.
    """
    device = NAME if device.upper() == NAME else device
    options["device"] = device
    # `compare_within` raises for a device of the other runtime.
    if device == NAME and candidate.dialect == "onnx":
        return _compare_on_webgpu(reference, candidate, options)
    place = _stand_in_for(device) if candidate.dialect == "openvino" else None
    if place is None:
        return compare_within(reference, candidate, **options)
    start = ["/bin/sh", "-c", '. "$0/env.sh" && exec "$@"', str(place.resolve())]
    return _apart((reference, candidate), options, str(place), start=start)


def _compare_on_webgpu(reference: Model, candidate: Model, options: dict[str, Any]) -> Comparison:
    """Return the comparison on a WebGPU adapter, in f32 if it does not support f16."""
    variables = _webgpu(options.get("prompt_ids") or ())
    twin, difference = for_adapter(candidate, is_software=bool(variables))
    comparison = _apart((reference, twin), options, NAME, variables)
    skipped = (f"the candidate's rounding to f16: it ran{difference}",) if difference else ()
    return replace(comparison, skipped=comparison.skipped + skipped)


def compare_pair_on_device(reference: Model, prefill: Model, decode: Model, device: str) -> Comparison:
    """Compare a prefill and a decode model, on a device, with the dynamic model.

    Prompts and steps are those of `compare_pair`.

    Args:
        reference: The dynamic model, which runs on the CPU.
        prefill: The model for prompts.
        decode: The model for steps of one token.
        device: Device of the pair: ``"CPU"``, ``"QNN"`` for ONNX, or one of OpenVINO.

    Returns:
        As `compare_pair`.

    Raises:
        UsageError: GP240, the device does not support pairs.
        UnsupportedError: GP321, the device's process ended; GP394, the two are not a pair; or as `compare_pair`.
    """
    if decode.dialect == "onnx" and device not in {"CPU", QNN}:
        message = f"a prefill and a decode model in ONNX are compared on CPU and {QNN}, not on {device!r}"
        raise UsageError("GP240", message, f"use CPU, or {QNN} for Qualcomm's HTP")
    options = {"split": sizes_of(prefill, decode), "device": device}
    return _apart((reference, prefill, decode), options, device)


def _apart(
    models: tuple[Model, ...],
    options: dict[str, Any],
    place: str,
    variables: Mapping[str, str] | None = None,
    start: Sequence[str] = (),
) -> Comparison:
    """Return the result of a comparison in a separate process.

    Args:
        models: Arguments of the comparison.
        options: Options of the comparison.
        place: Name of the device in errors.
        variables: Environment variables of the process.
        start: Command that starts the process; the interpreter and its arguments are appended.

    Raises:
        UnsupportedError: GP321, the process ended without a result.
        GraphpassError: The comparison raised it.
    """
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
    """Return the environment variables by which ONNX Runtime finds a WebGPU adapter.

    Raises:
        UnsupportedError: GP321, no adapter is available, or it does not support prompts of this length.
    """
    variables = environment()
    if isinstance(variables, str):
        raise UnsupportedError("GP321", f"cannot compare on {NAME}: {variables}")
    if variables and len(prompt) > LONGEST_IN_SOFTWARE:
        reason = f"SwiftShader computes prompts of more than {LONGEST_IN_SOFTWARE} tokens incorrectly"
        raise UnsupportedError("GP321", f"cannot compare on {NAME}: {reason}", "use a shorter prompt, or a GPU")
    return variables


def _stand_in_for(device: str) -> Path | None:
    if not device.startswith("GPU"):
        return None
    from graphpass.runtime.backends.openvino_request import is_there

    if is_there(device):
        return None
    environment = stand_in()
    if environment is None:
        reason = f"this machine has no {device}, and {ENVIRONMENT} names no environment that replaces one"
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
    """Compare in the separate process, and write the result or error to ``answer``."""
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
