"""Fixtures on WebGPU, in Chromium and on HTP: `python tests/benchmarks/devices.py webgpu|web|qnn [MODEL ...]`.

Prints the rows of the tables in docs/devices.md, one a model, and the versions of what ran.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support import models
from support.commands import in_subprocess

import graphpass
from graphpass.artifacts.split import phases_of
from graphpass.engine.pipeline import parse_target
from graphpass.jobs.pipelines import pipeline_for
from graphpass.runtime.devices import find_runtimes
from graphpass.runtime.devices.javascript import MODULES, JavaScript, find_javascript
from graphpass.targets import check_model
from graphpass.targets.web.trial import run_task
from graphpass.verify.on_device import compare_on_device

ROOT = Path(__file__).resolve().parents[2]

F32 = "ort{device=webgpu,precision=f32}"
PAIR = "qnn{{prompt=64,chunk=16,capacity=120,precision={}}}"


def exports() -> Iterator[tuple[str, Path]]:
    """Yield name and folder of each decoder in ONNX; `reference.json` lies in the folder or above it."""
    places = (models.fixtures(), models.dynamo("."), models.hybrids(), models.exporters(".", "."))
    for place in places:
        for file in sorted(place.glob("*/*/model.onnx")):
            if file.parents[1].name not in {"encoders", "t5", "whisper"}:
                yield str(file.parent.relative_to(place)), file.parent


def told(folder: Path) -> dict[str, Any]:
    """Return what PyTorch generates."""
    file = next(place / "reference.json" for place in (folder, folder.parent) if (place / "reference.json").exists())
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def converted(folder: Path, target: str, out: Path) -> str | None:
    """Convert as a user does; return the reason of a refusal."""
    done = in_subprocess("convert", folder, "-o", out, "--target", target, "--no-verify")
    return None if done.code == 0 else f"refused: {done.err.splitlines()[0]}"


def webgpu(name: str, folder: Path) -> str:
    """Return a row: the comparison in lockstep, and what the trial found."""
    source = graphpass.load(folder)
    result = graphpass.PassManager(pipeline_for(parse_target(F32), source)).run(source).model
    found = check_model(result, F32).confirmation
    assert found is not None
    compared = compare_on_device(source, result, "WEBGPU", steps=6)
    same = f"equal, {compared.max_abs_difference:.1e}" if compared.passed else str(compared.divergence)
    return f"| {name} | {same} | {found.outcome} | {found.tried} | {' '.join(found.contradictions)} |"


def web(name: str, folder: Path) -> str:
    """Return a row: tokens in headless Chromium that are PyTorch's, by device."""
    javascript, wanted, cells = find_javascript(), told(folder), []
    assert isinstance(javascript, JavaScript), javascript
    for device in ("wasm", "webgpu"):
        with tempfile.TemporaryDirectory() as scratch:
            out = Path(scratch, "out")
            if refused := converted(folder, f"web{{device={device}}}", out):
                cells.append(refused)
                continue
            tokens, rows = wanted["greedy_ids"], ([wanted["prompt_ids"]],)
            answer = run_task(javascript, out, device, rows, len(tokens), in_browser=True)
        if isinstance(answer, str):
            cells.append(answer)
        else:
            equal = sum(one == other for one, other in zip(answer[0].tokens[0], tokens, strict=True))
            cells.append(f"{equal} of {len(tokens)}")
    return f"| {name} | {' | '.join(cells)} |"


def qnn(name: str, folder: Path) -> str:
    """Return a row: what the trial on HTP found, in f16 and in f32."""
    source, cells = graphpass.load(folder), []
    for precision in ("f16", "f32"):
        target = parse_target(PAIR.format(precision))
        try:
            prepared = graphpass.PassManager(pipeline_for(target, source)).run(source).model
            phases = phases_of(target.split).values()
            prefill, decode = (graphpass.PassManager(steps).run(prepared).model for steps in phases)
        except graphpass.GraphpassError as error:
            cells.append(f"refused: {error.id}: {error.message}")
            continue
        found = check_model(decode, target, encoder=prefill).confirmation
        assert found is not None
        cells += [found.outcome, found.tried, *found.contradictions]
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    device, *names = sys.argv[1:]
    os.environ.setdefault(MODULES, str(ROOT / "build" / "javascript" / "node_modules"))
    row = {"webgpu": webgpu, "web": web, "qnn": qnn}[device]
    for runtime in find_runtimes():
        print(runtime.name, runtime.version, *(adapter.name for adapter in runtime.adapters))
    for name, folder in exports():
        if not names or name in names:
            try:
                print(row(name, folder), flush=True)
            except graphpass.GraphpassError as error:
                print(f"| {name} | {error.id}: {error.message} |", flush=True)


if __name__ == "__main__":
    main()
