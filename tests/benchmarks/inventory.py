"""How long the cache inventory takes, by depth: `python tests/benchmarks/inventory.py`.

Layers are those of a real export (llama_12l, about 290 nodes a layer); weights are external and absent. The goals are
under 2 s for 80 layers, and linear growth: the last column stays level. Then the same with a Loop in each layer.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support import loop_forms
from support.deep_models import deepened
from support.models import export

import graphpass
from graphpass.analysis.bodies import inlined
from graphpass.onnx_model import OnnxModel

REPEATS = 3


def main() -> None:
    source = graphpass.load(export("llama_12l", "onnx"))
    measure(lambda layers: deepened(source, layers, weights="absent.data"))
    print("a state in a Loop over the tokens in each layer:")
    measure(loop_forms.deep)


def measure(build: Callable[[int], OnnxModel]) -> None:
    """Print a row for each depth."""
    print("layers   nodes   caches   seconds   us a node")
    for layers in (12, 20, 40, 80, 160):
        seconds = []
        for _ in range(REPEATS):
            model = build(layers)
            start = time.perf_counter()
            inventory = graphpass.analyze_caches(model)
            seconds.append(time.perf_counter() - start)
        # Bodies count: the view has all their nodes.
        nodes, median = len(inlined(model).graph.nodes), statistics.median(seconds)
        caches = len(inventory.of_kind("kv", "linear"))
        print(f"{layers:6}  {nodes:6}  {caches:7}  {median:8.2f}  {median / nodes * 1e6:10.1f}")


if __name__ == "__main__":
    main()
