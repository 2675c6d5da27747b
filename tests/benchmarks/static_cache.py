"""Decode steps on caches of fixed capacity, against caches that grow: `python tests/benchmarks/static_cache.py`.

One decoder (8 layers, 16 heads, 4 of them in the caches, of 64; f32) in ONNX Runtime:

    growing    past and present of the exported model, in the session's two memories a cache
    in place   static-cache: one buffer a cache, which never moves

at several lengths and capacities. Steps take turns, so that a busy machine slows both alike. Attention reads the whole
buffer, so a buffer that is mostly empty costs; one that is full costs what growing caches do, without their copies.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import numpy

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.made_decoder import made_decoder

from graphpass import PassManager, parse
from graphpass.runtime import open_in_place, open_session

STEPS = 20


def measure(length: int, capacity: int) -> None:
    model = made_decoder()
    fixed = PassManager(parse(f"static-cache{{capacity={capacity}}}")).run(model).model
    sessions = {"growing": open_session(model), "in place": open_in_place(fixed)}
    prompt = numpy.random.default_rng(0).integers(3, 500, length)
    for session in sessions.values():
        session.prefill(prompt)
    buffers = {name: buffer.ctypes.data for name, buffer in sessions["in place"].buffers.items()}
    seconds: dict[str, list[float]] = {name: [] for name in sessions}
    for turn in range(STEPS + 2):
        for name in sorted(sessions, reverse=turn % 2 == 0):
            start = time.perf_counter()
            sessions[name].step([5])
            seconds[name].append(time.perf_counter() - start)
    assert buffers == {name: buffer.ctypes.data for name, buffer in sessions["in place"].buffers.items()}
    median = {name: statistics.median(found[2:]) for name, found in seconds.items()}
    numpy.testing.assert_allclose(*(session.logits for session in sessions.values()), atol=1e-2)
    ratio = median["growing"] / median["in place"]
    print(f"{length:7} {capacity:8} {median['growing'] * 1e3:8.1f} ms {median['in place'] * 1e3:8.1f} ms {ratio:6.2f}x")


if __name__ == "__main__":
    print(f"{'length':>7} {'capacity':>8} {'growing':>11} {'in place':>11} {'faster':>7}")
    for held, room in ((480, 512), (1000, 1024), (2000, 2048), (4000, 4096), (500, 2048), (1000, 4096)):
        measure(held, room)
