"""Generate on transformers.js, in Node and in headless Chromium, and compare with ONNX Runtime."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy
from numpy.typing import NDArray

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.engine.findings import Observation
from graphpass.runtime.devices.apart import run_apart
from graphpass.runtime.devices.javascript import JavaScript, find_javascript
from graphpass.runtime.devices.software import software_vulkan

if TYPE_CHECKING:
    from graphpass.dialects.onnx.model import OnnxModel

Rows: TypeAlias = "list[list[int]]"

_HERE = Path(__file__).parent

#: Seconds after which a runtime counts as hanging.
_LIMIT = 600

#: Prompts: one alone, and two of unlike lengths side by side, which are padded on the left.
_ALONE: tuple[Rows, ...] = ([[5, 9, 17, 3, 11]],)
_PADDED: tuple[Rows, ...] = ([[7, 2, 8], [4, 6, 1, 9, 3, 12]],)
_STEPS = 6

#: Largest difference of logits, relative to the largest of them: in f32 2e-4 was measured on SwiftShader.
_TOLERANCE = {"f32": 5e-3, "f16": 5e-2}


@dataclass(frozen=True, slots=True)
class Generated:
    """Holds what was generated for a batch.

    Attributes:
        tokens: New tokens of each row.
        logits: f32 [rows, vocabulary], after the prompts.
    """

    tokens: Rows
    logits: NDArray[numpy.float32]


def observe(model: OnnxModel, config: str, file: str, device: str) -> Observation | str:
    """Generate with ``model`` on transformers.js; return the obstacle if that is impossible.

    Args:
        model: The model.
        config: Text of ``config.json``.
        file: Path of the model in the folder.
        device: ``"webgpu"`` or ``"wasm"``.
    """
    from graphpass.dialects.onnx.shards import stage_sharded

    found = find_javascript()
    if isinstance(found, str):
        return found
    batches = _ALONE if analyze_caches(model).kind == "hybrid" else (*_ALONE, *_PADDED)
    expected = [_on_cpu(model, rows) for rows in batches]
    tried = f"transformers.js {found.version}, a prompt and {_STEPS} tokens"
    with tempfile.TemporaryDirectory(prefix=".graphpass_web-") as name:
        folder = Path(name, "model")
        (folder / file).parent.mkdir(parents=True)
        stage_sharded(model, (folder / file).parent, Path(file).name)
        (folder / "config.json").write_text(config, encoding="utf-8")
        for place, where in _places(found, device):
            answer = run_task(found, folder, where, batches, in_browser=place == "Chromium")
            tried += f", in {place} on {where}"
            if isinstance(answer, str):
                return Observation(tried, refused=answer)
            if (reason := _difference(expected, answer, model)) is not None:
                return Observation(tried, wrong=f"in {place} on {where} {reason}", ran=True)
    return Observation(tried, ran=True)


def _places(found: JavaScript, device: str) -> tuple[tuple[str, str], ...]:
    """Return programs and devices to try."""
    # The CPU of Node shows at little cost whether the folder loads.
    if found.browser is not None:
        return ("Node", "cpu"), ("Chromium", device)
    return ("Node", "cpu"), *((("Node", device),) if device == "webgpu" else ())


def run_task(
    found: JavaScript, folder: Path, device: str, batches: tuple[Rows, ...], steps: int = _STEPS, *, in_browser: bool
) -> list[Generated] | str:
    """Generate with a folder in a process of its own; return how that failed otherwise."""
    with tempfile.TemporaryDirectory(prefix=".graphpass_web-") as name:
        task, answer = Path(name, "task.json"), Path(name, "answer.json")
        software = software_vulkan()
        given = {
            "modules": str(found.modules),
            "folder": str(folder.resolve()),
            "device": device,
            "batches": batches,
            "steps": steps,
            "chromium": found.browser,
            "software": software is not None,
        }
        task.write_text(json.dumps(given), encoding="utf-8")
        script = _HERE / ("in_browser.mjs" if in_browser else "in_node.mjs")
        # Node's WebGPU looks for a driver of Vulkan; Chromium brings its own.
        environment: Mapping[str, str] = software or {} if device == "webgpu" and not in_browser else {}
        if failure := run_apart([found.node, str(script), str(task), str(answer)], answer, _LIMIT, environment):
            return failure
        results: list[dict[str, Any]] = json.loads(answer.read_text())["results"]
    return [Generated(each["tokens"], numpy.array(each["logits"], numpy.float32)) for each in results]


def _on_cpu(model: OnnxModel, rows: Rows) -> Generated:
    """Generate with a session on ONNX Runtime's CPU provider."""
    from graphpass.runtime import open_session

    session = open_session(model)
    width = max(map(len, rows))
    ids = numpy.array([[0] * (width - len(row)) + row for row in rows])
    mask = numpy.array([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    logits = session.prefill(ids, None if mask.all() else mask)[:, -1]
    tokens, first = [logits.argmax(-1)], logits
    while len(tokens) < _STEPS:
        tokens.append(session.step(tokens[-1][:, None])[:, -1].argmax(-1))
    return Generated(numpy.stack(tokens, 1).tolist(), first.astype(numpy.float32))


def _difference(expected: list[Generated], found: list[Generated], model: OnnxModel) -> str | None:
    """Return the first difference that rounding does not explain."""
    kinds = {cache.element_type for cache in analyze_caches(model).caches}
    tolerance = _TOLERANCE["f16" if "f16" in kinds else "f32"]
    for right, ours in zip(expected, found, strict=True):
        largest = float(numpy.abs(right.logits - ours.logits).max())
        if not largest <= tolerance * max(1.0, float(numpy.abs(right.logits).max())):
            return f"logits differ by {largest:.2g}"
        # In f16 a tie may fall either way.
        if "f16" not in kinds and ours.tokens != right.tokens:
            return f"tokens are {ours.tokens}, not {right.tokens}"
    return None
