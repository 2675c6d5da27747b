"""Trial on transformers.js, in Node and headless Chromium, compared with ONNX Runtime."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from graphpass.engine.findings import Observation
from graphpass.runtime.devices.apart import run_apart
from graphpass.runtime.devices.javascript import JavaScript, find_javascript
from graphpass.runtime.devices.software import software_vulkan
from graphpass.targets.ort.generated import (
    STEPS,
    Generated,
    Rows,
    batches_for,
    generated_difference,
    largest_difference,
    on_cpu,
)

if TYPE_CHECKING:
    from graphpass.dialects.onnx.model import OnnxModel

_HERE = Path(__file__).parent

#: Seconds after which a runtime counts as hanging.
_LIMIT = 600

#: The error of onnxruntime-node on machines without a GPU (``core/providers/webgpu/webgpu_context.cc``).
_NO_ADAPTER = "Failed to get a WebGPU adapter"


def observe(model: OnnxModel, config: str, file: str, device: str, difference: str = "") -> Observation | str:
    """Generate with ``model`` on transformers.js.

    Args:
        model: The model.
        config: Text of ``config.json``.
        file: Path of the model in the folder.
        device: ``"webgpu"`` or ``"wasm"``.
        difference: Text on how ``model`` differs from the checked model, such as its precision; may be empty.

    Returns:
        The observation, or the reason why no trial is possible.
    """
    from graphpass.dialects.onnx.shards import stage_sharded

    javascript = find_javascript()
    if isinstance(javascript, str):
        return javascript
    batches = batches_for(model)
    right = on_cpu(model, batches)
    if isinstance(right, str):
        return right
    tried = f"transformers.js {javascript.version}, a prompt and {STEPS} tokens{difference}"
    with tempfile.TemporaryDirectory(prefix=".graphpass_web-") as name:
        folder = Path(name, "model")
        (folder / file).parent.mkdir(parents=True)
        stage_sharded(model, (folder / file).parent, Path(file).name)
        (folder / "config.json").write_text(config, encoding="utf-8")
        for program, where in _programs(javascript, device):
            answer = run_task(javascript, folder, where, batches, in_browser=program == "Chromium")
            if isinstance(answer, str) and _NO_ADAPTER in answer:
                tried += f", and not on {where}: {program} found no adapter"
                continue
            if isinstance(answer, str):
                return Observation(tried, refused=f"in {program} on {where}: {answer}")
            tried += f", in {program} on {where} (logits within {largest_difference(right, answer):.2g})"
            if (reason := generated_difference(right, answer, model)) is not None:
                return Observation(tried, wrong=f"in {program} on {where} {reason}", ran=True)
    return Observation(tried, ran=True)


def _programs(javascript: JavaScript, device: str) -> tuple[tuple[str, str], ...]:
    """Return the programs and devices of the trial."""
    # Node on the CPU is a fast check that the folder loads.
    if javascript.browser is not None:
        return ("Node", "cpu"), ("Chromium", device)
    return ("Node", "cpu"), *((("Node", device),) if device == "webgpu" else ())


def run_task(
    javascript: JavaScript,
    folder: Path,
    device: str,
    batches: tuple[Rows, ...],
    steps: int = STEPS,
    *,
    in_browser: bool,
) -> list[Generated] | str:
    """Generate with a folder in a separate process.

    Args:
        javascript: The programs.
        folder: A folder with config.json and the model, as transformers.js loads it.
        device: ``"cpu"``, ``"wasm"`` or ``"webgpu"``.
        batches: Prompts of each batch, as token ids; shorter prompts are padded on the left.
        steps: Number of tokens to generate.
        in_browser: Whether to generate in Chromium, not in Node.

    Returns:
        A result for each batch, or the error of the process.
    """
    results = answers_of(javascript, folder, device, batches, steps, in_browser=in_browser)
    if isinstance(results, str):
        return results
    return [Generated(each["tokens"], numpy.array(each["logits"], numpy.float32)) for each in results]


def answers_of(
    javascript: JavaScript, folder: Path, device: str, batches: tuple[Rows, ...], steps: int, *, in_browser: bool
) -> list[dict[str, Any]] | str:
    """See `run_task`; returns the results of ``generate.mjs`` as objects.

    Returns:
        The results of ``generate.mjs``, an object for each batch with ``tokens`` and ``logits``, or the error of the
        process.
    """
    with tempfile.TemporaryDirectory(prefix=".graphpass_web-") as name:
        task, answer = Path(name, "task.json"), Path(name, "answer.json")
        software = software_vulkan()
        request = {
            "modules": str(javascript.modules),
            "folder": str(folder.resolve()),
            "device": device,
            "batches": batches,
            "steps": steps,
            "chromium": javascript.browser,
            "software": software is not None,
        }
        task.write_text(json.dumps(request), encoding="utf-8")
        script = _HERE / ("in_browser.mjs" if in_browser else "in_node.mjs")
        # Node's WebGPU needs a Vulkan driver; Chromium has its own.
        environment: Mapping[str, str] = software or {} if device == "webgpu" and not in_browser else {}
        if failure := run_apart([javascript.node, str(script), str(task), str(answer)], answer, _LIMIT, environment):
            return failure
        results: list[dict[str, Any]] = json.loads(answer.read_text())["results"]
    return results
