"""Measure the structural proof alone: `python tests/benchmarks/structure.py FOLDER`.

Models of real shapes, whose weights are holes in a sparse file, are converted below FOLDER. Each proof is a process
of its own. Goals: 24 layers of the 0.5B shape in 10 s and 500 MB, 80 layers of the 70B shape in 30 s.
"""

from __future__ import annotations

import itertools
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from support.scale import scaled

import graphpass
from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse_target

MODELS = (("llama", "0.5B", 24), ("llama_f16", "70B", 80))
TARGETS = ("cpu", "ort")

#: Weights of results: links to those of the reference, or copies, which the proof reads once to compare them.
WEIGHTS = {"0.5B": ("share", "copy"), "70B": ("share",)}


def proven(reference: str, result: str) -> None:
    """Print seconds and memory of one proof, and its counts."""
    from graphpass.verify.structure.proof import compare_structures

    models = graphpass.load(reference), graphpass.load(result)
    start = time.perf_counter()
    found = compare_structures(*models)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    counts = None if found is None else (found.operators, found.equal, found.unpadded)
    print(json.dumps([time.perf_counter() - start, memory, counts]))


def main(folder: Path) -> None:
    print(f"{'proof by structure':34} {'clock s':>8} {'peak MB':>8}  operators, equal, without padding")
    for family, size, layers in MODELS:
        model = scaled(family, size, folder / f"{family}-{size}-{layers}", layers)
        for target, weights in itertools.product(TARGETS, WEIGHTS[size]):
            source, out = graphpass.load(model), folder / f"{size}-{target}-{weights}"
            file = out / ("model.onnx" if target == "ort" else "openvino_model.xml")
            made = PassManager(parse_target(target).pipeline(source)).run(source).model
            graphpass.save(made, file, weights=weights)
            del source, made
            program = (sys.executable, __file__, "--proven", str(model), str(file))
            said = subprocess.run(program, check=True, capture_output=True, text=True).stdout
            seconds, memory, counts = json.loads(said.splitlines()[-1])
            name = f"{size}, {layers} layers, {target}, {weights}"
            print(f"{name:34} {seconds:8.2f} {memory:8.0f}  {counts}", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--proven":
        proven(*sys.argv[2:])
    else:
        main(Path(sys.argv[1]))
