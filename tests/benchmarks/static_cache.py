"""Decode steps on caches of fixed capacity, against caches that grow: `python tests/benchmarks/static_cache.py`.

One decoder (8 layers, 16 heads, 4 of them in the caches, of 64; f32) in ONNX Runtime:

    growing    past and present of the exported model, in the session's two memories a cache
    in place   static-cache: one buffer a cache, which never moves
    opset 24   static-cache on the same model in opset 24: ONNX's Attention on the buffer

at several lengths and capacities. Steps take turns, so that a busy machine slows all alike. Decomposed attention reads
the whole buffer, however much of it is in use, and copies it for each query head, as it does with growing caches.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import numpy
from onnx import version_converter

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


from graphpass import PassManager, parse
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.runtime import open_session
from graphpass.testing import Family, tiny_model

STEPS = 20


def measure(length: int, capacity: int) -> None:
    model = tiny_model(Family(heads=16, kv_heads=4, head_dim=64, vocabulary=512), layers=8)
    passes = parse(f"static-cache{{capacity={capacity}}}")
    newer = OnnxModel(version_converter.convert_version(model.proto, 24))
    sessions = {
        "growing": open_session(model),
        "in place": open_session(PassManager(passes).run(model).model),
        "opset 24": open_session(PassManager(passes).run(newer).model),
    }
    prompt = numpy.random.default_rng(0).integers(3, 500, length)
    for session in sessions.values():
        session.prefill(prompt)
    buffers = {name: buffer.ctypes.data for name, buffer in sessions["in place"].store.buffers.items()}
    seconds: dict[str, list[float]] = {name: [] for name in sessions}
    for turn in range(STEPS + 2):
        for name in sorted(sessions, reverse=turn % 2 == 0):
            start = time.perf_counter()
            sessions[name].step([5])
            seconds[name].append(time.perf_counter() - start)
    assert buffers == {name: buffer.ctypes.data for name, buffer in sessions["in place"].store.buffers.items()}
    median = {name: statistics.median(found[2:]) for name, found in seconds.items()}
    for session in sessions.values():
        numpy.testing.assert_allclose(session.logits, sessions["growing"].logits, atol=1e-2)
    cells = (f"{value * 1e3:8.1f} ms {median['growing'] / value:6.2f}x" for value in median.values())
    print(f"{length:7} {capacity:8} " + " ".join(cells))


if __name__ == "__main__":
    print(f"{'length':>7} {'capacity':>8} {'growing':>19} {'in place':>19} {'opset 24':>19}")
    for held, room in ((480, 512), (1000, 1024), (2000, 2048), (4000, 4096), (500, 2048), (1000, 4096)):
        measure(held, room)
