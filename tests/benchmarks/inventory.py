"""What the cache inventory takes, by depth, in time and memory: `python tests/benchmarks/inventory.py`.

Layers are those of a real export (llama, about 230 nodes a layer); weights are holes in a file. The goals are under
2 s for 80 layers, and linear growth: what a node takes stays level. Then the same with a Loop in each layer.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support import loop_forms
from support.scale import scaled

import graphpass
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.ir.bodies import inlined

REPEATS = 3


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        measure(lambda layers: graphpass.load(scaled("llama", "tiny", Path(folder), layers)))
    print("a state in a Loop over the tokens in each layer:")
    measure(loop_forms.deep)


def measure(build: Callable[[int], OnnxModel]) -> None:
    """Print a row for each depth."""
    print("layers   nodes   caches   seconds   us a node   peak MB   KB a node")
    for layers in (10, 20, 40, 80, 160):
        seconds = []
        for _ in range(REPEATS):
            model = build(layers)
            start = time.perf_counter()
            inventory = graphpass.analyze_caches(model)
            seconds.append(time.perf_counter() - start)
        # Bodies count: the view has all their nodes.
        nodes, median = len(inlined(model).graph.nodes), statistics.median(seconds)
        caches = len(inventory.of_kind("kv", "linear"))
        peak = peak_of(build(layers))
        print(
            f"{layers:6}  {nodes:6}  {caches:7}  {median:8.2f}  {median / nodes * 1e6:10.1f}"
            f"  {peak / 1e6:8.1f}  {peak / nodes / 1e3:9.1f}"
        )


def peak_of(model: OnnxModel) -> int:
    """The most bytes that Python's objects took at a time, beyond the model itself."""
    tracemalloc.start()
    try:
        graphpass.analyze_caches(model)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


if __name__ == "__main__":
    main()
