"""Folders of target `web` against exports laid out by hand: `python tests/benchmarks/web.py OPTIMUM [MOBIUS]`.

OPTIMUM is a folder that `optimum-cli export onnx` wrote, with config.json; MOBIUS one of
`mobius.build(CHECKPOINT, dtype="f32", execution_provider="webgpu").save(MOBIUS)` of the same checkpoint. In Chromium,
models take turns, each in a page of its own, which generates several times; the first time does not count. Milliseconds
are medians of a prompt and of a step. Those of SwiftShader, which computes on the CPU, say little of a GPU.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import onnx
from support.commands import in_subprocess

from graphpass.runtime.devices.javascript import MODULES, JavaScript, find_javascript
from graphpass.targets.web.trial import answers_of

#: Tokens of the prompt: WebGPU computes longer ones wrongly on SwiftShader.
PROMPTS = {"wasm": 255, "webgpu": 31}
STEPS, REPEATED, TURNS = 12, 4, 2


def laid_out(export: Path, config: Path, out: Path) -> Path:
    """Lay out an export by hand: `batch_size` is the one name of a dimension that transformers.js knows."""
    (out / "onnx").mkdir(parents=True)
    settings = json.loads(config.read_text()) | {"transformers.js_config": {"dtype": "fp32"}}
    (out / "config.json").write_text(json.dumps(settings))
    model = onnx.load(export / "model.onnx")
    for port in (*model.graph.input, *model.graph.output):
        first = port.type.tensor_type.shape.dim[0]
        first.dim_param = "batch_size" if first.dim_param == "batch" else first.dim_param
    onnx.save(model, out / "onnx" / "model.onnx")
    return out


def converted(export: Path, device: str, out: Path) -> Path:
    done = in_subprocess("convert", export, "-o", out, "--target", f"web{{device={device}}}", "--no-verify")
    assert done.code == 0, done.err
    return out


def timed(found: JavaScript, folder: Path, device: str) -> tuple[list[float], list[float]]:
    """Return milliseconds of prompts and of steps."""
    prompt = [random.Random(0).randrange(5, 250) for _ in range(PROMPTS[device])]
    answer = answers_of(found, folder, device, ([prompt],) * REPEATED, STEPS, in_browser=True)
    assert not isinstance(answer, str), answer
    times = [each["times"] for each in answer[1:]]
    return [one[1] - one[0] for one in times], [after - before for one in times for before, after in pairwise(one[1:])]


def main() -> None:
    os.environ.setdefault(MODULES, str(Path(__file__).resolve().parents[2] / "build" / "javascript" / "node_modules"))
    found = find_javascript()
    assert isinstance(found, JavaScript), found
    optimum, *others = map(Path, sys.argv[1:])
    with tempfile.TemporaryDirectory() as scratch:
        place, config = Path(scratch), optimum / "config.json"
        by_hand = {"optimum's export": laid_out(optimum, config, place / "optimum")}
        if others:
            by_hand["mobius' graph for WebGPU"] = laid_out(others[0], config, place / "mobius")
        for device in PROMPTS:
            folders = {"graphpass": converted(optimum, device, place / device), **by_hand}
            taken: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in folders}
            for _ in range(TURNS):
                for name, folder in folders.items():
                    for kept, new in zip(taken[name], timed(found, folder, device), strict=True):
                        kept += new
            ours = [statistics.median(times) for times in taken["graphpass"]]
            for name, times in taken.items():
                each = [statistics.median(one) for one in times]
                shares = [one / own for one, own in zip(each, ours, strict=True)]
                print(
                    f"| {device} | {name} | {each[0]:.0f} ({shares[0]:.2f}) | {each[1]:.1f} ({shares[1]:.2f}) |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
