"""Handing a cache over in place, against a temporary and a new allocation: `python tests/benchmarks/hand_over.py`.

The key and the transposed value of each layer have 8 heads of 128 in f16. A full prompt of half the decode capacity
goes from [1, H, P, D] to [1, H, N, D], or from [1, H, D, P] to [1, H, D, N]:

    in place    graphpass.runtime.pair.hand_over, inside the buffer that the decode model keeps (short rows by a copy)
    temporary   in that buffer, too, through a dense copy of each cache, as NPUW does it
    allocate    into a new buffer of the decode layout, while the prefill's is still there

The memory is the peak of what is allocated beside the buffers, of the decode layout's size, that hold the prompt.
The three take turns, so that a busy machine slows all alike.
"""

from __future__ import annotations

import statistics
import time
import tracemalloc
from collections.abc import Callable

import numpy

from graphpass.runtime.pair.hand_over import Placement, hand_over

HEADS, HEAD_DIM = 8, 128
ROUNDS = 5


def shapes(length: int) -> list[tuple[int, ...]]:
    """Key and transposed value."""
    return [(1, HEADS, length, HEAD_DIM), (1, HEADS, HEAD_DIM, length)]


def in_place(buffers: list[numpy.ndarray], prompt: int, capacity: int) -> None:
    for place, buffer in enumerate(buffers):
        source, target = shapes(prompt)[place % 2], shapes(capacity)[place % 2]
        hand_over(buffer, Placement(source), Placement(target), source)


def temporary(buffers: list[numpy.ndarray], prompt: int, capacity: int) -> None:
    for place, buffer in enumerate(buffers):
        source, target = shapes(prompt)[place % 2], shapes(capacity)[place % 2]
        kept = buffer[: numpy.prod(source)].reshape(source).copy()
        window = tuple(slice(size) for size in source)
        buffer.reshape(target)[window] = kept


def allocate(buffers: list[numpy.ndarray], prompt: int, capacity: int) -> None:
    made: list[numpy.ndarray] = []
    for place, buffer in enumerate(buffers):
        source, target = shapes(prompt)[place % 2], shapes(capacity)[place % 2]
        new = numpy.zeros(target, buffer.dtype)
        new[tuple(slice(size) for size in source)] = buffer[: numpy.prod(source)].reshape(source)
        made.append(new)


WAYS: dict[str, Callable[[list[numpy.ndarray], int, int], None]] = {
    "in place": in_place,
    "temporary": temporary,
    "allocate": allocate,
}


def measure(layers: int, capacity: int) -> None:
    prompt = capacity // 2
    size = HEADS * HEAD_DIM * capacity
    buffers = [numpy.ones(size, numpy.float16) for _ in range(2 * layers)]
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    for turn in range(ROUNDS + 1):
        for name in sorted(WAYS, reverse=turn % 2 == 0):
            start = time.perf_counter()
            WAYS[name](buffers, prompt, capacity)
            seconds[name].append(time.perf_counter() - start)
    beside = {name: _peak(way, buffers, prompt, capacity) for name, way in WAYS.items()}
    held = sum(buffer.nbytes for buffer in buffers)
    medians = {name: statistics.median(found[1:]) for name, found in seconds.items()}
    cells = [
        f"{medians[name] * 1e3:8.1f} ms {medians[name] / medians['in place']:5.2f}x {beside[name] / 2**20:7.0f} MiB"
        for name in WAYS
    ]
    print(f"{layers:6} {capacity:8} {held / 2**20:7.0f} MiB  " + "  ".join(cells))


def _peak(
    way: Callable[[list[numpy.ndarray], int, int], None], buffers: list[numpy.ndarray], prompt: int, capacity: int
) -> int:
    tracemalloc.start()
    way(buffers, prompt, capacity)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


if __name__ == "__main__":
    print(f"{'layers':>6} {'capacity':>8} {'caches':>11}  " + "  ".join(f"{name:>29}" for name in WAYS))
    for count in (16, 32):
        for length in (1024, 4096, 8192, 16384, 32768):
            measure(count, length)
