"""Recurrent layers on ONNX Runtime, as loops and fused: `python tests/benchmarks/hybrids.py`.

LinearAttention of real sizes against the Scan that `lower-operators` makes of it, and the tiny hybrid of
`fixtures/hybrids.tar.xz` as exported against what target `ort` makes of it: a prompt of 256 tokens, and a step. Models
take turns; times are medians of one run, in milliseconds.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import numpy
import onnxruntime

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support import linear_attention
from support.models import hybrids

import graphpass
from graphpass.targets.ort.target import ORT

#: Rule, heads, sizes of keys and values: Qwen3-Next, Mamba-2.
LAYERS = (("gated_delta", 16, 128, 128), ("gated", 48, 128, 64))
PROMPT = 256


def timed(models: list[graphpass.Model], feeds: dict[str, numpy.ndarray], rounds: int) -> list[float]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    # Threads of the model that waits for its turn would take the cores.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    opened = [
        onnxruntime.InferenceSession(model.proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        for model in models
    ]
    taken: list[list[float]] = [[] for _ in opened]
    for turn in range(rounds + 1):
        for place, session in enumerate(opened):
            names = {port.name for port in session.get_inputs()}
            start = time.perf_counter()
            session.run(None, {name: value for name, value in feeds.items() if name in names})
            taken[place] += [1e3 * (time.perf_counter() - start)] if turn else []
    return [statistics.median(times) for times in taken]


def printed(name: str, models: list[graphpass.Model], feeds: dict[str, numpy.ndarray], length: int) -> None:
    loop, fused = timed(models, feeds, 9 if length > 1 else 99)
    print(f"{name:32} {length:4} tokens {loop:9.3f} -> {fused:8.3f} ms, 1 / {loop / fused:.1f}")


def ran(model: graphpass.Model, passes: str) -> graphpass.Model:
    return graphpass.PassManager(graphpass.parse(passes)).run(model).model


def main() -> None:
    for rule, heads, key_dim, value_dim in LAYERS:
        linear_attention.KEY_DIM, linear_attention.VALUE_DIM = key_dim, value_dim
        operator = linear_attention.build(rule, heads, heads)
        loop = ran(operator, "lower-operators")
        for length in (PROMPT, 1):
            feeds = linear_attention.feeds(operator, length, numpy.random.default_rng(0))
            feeds = {name: value[:1] for name, value in feeds.items()}
            printed(
                f"{rule}, {heads} x {key_dim} x {value_dim}", [loop, ran(loop, "fuse-linear-attention")], feeds, length
            )
    model = graphpass.load(hybrids() / "qwen3_next_dense" / "onnx-raw")
    fused = graphpass.PassManager(ORT(context=512).pipeline(model)).run(model).model
    for length in (PROMPT, 1):
        feeds = {
            "input_ids": numpy.arange(1, length + 1)[None],
            "attention_mask": numpy.ones((1, length), numpy.int64),
            "position_ids": numpy.arange(length)[None],
        }
        for port in model.inputs:
            sizes = [
                1 if axis == 0 else size if isinstance(size, int) else 0 for axis, size in enumerate(port.shape or ())
            ]
            feeds.setdefault(port.name, numpy.zeros(sizes, numpy.float32))
        printed("qwen3_next_dense, 4 layers", [model, fused], feeds, length)


if __name__ == "__main__":
    main()
