"""Times a layer of experts as exporters write it, and in MoE or QMoE of ONNX Runtime.

    python tests/benchmarks/experts.py

One layer of 32 experts, of which a token has 4, hidden size 1024, inner size 768, f32. Each form and the operator take
turns on 2 threads; printed are medians in milliseconds, and how many times as long the form takes. Gathered weights are
timed for short prompts alone: 256 tokens copy 10 GB of them. Quantized weights are those of MatMulNBits in blocks of
32, with activations in f32 or int8.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy
import onnxruntime

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from onnx import helper
from support.expert_graphs import experts, quantized

import graphpass

SIZES = {"hidden": 1024, "inner": 768, "count": 32, "chosen": 4}
LENGTHS = {"separate": (1, 256), "dense": (1, 256), "gathered": (1, 16)}
TURNS = 15
ROUNDING = 4


def session(model: graphpass.Model) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    # Threads of the model that waits for its turn would take the cores.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    source = model.proto.SerializeToString()
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def rounding(model: graphpass.Model, level: int) -> graphpass.Model:
    """Ask products with quantized weights for an accuracy level."""
    for node in model.proto.graph.node:
        if node.op_type == "MatMulNBits":
            node.attribute.append(helper.make_attribute("accuracy_level", level))
    return model


def cases() -> Iterator[tuple[str, tuple[int, ...], graphpass.Model]]:
    for form, lengths in LENGTHS.items():
        yield form, lengths, experts(form, columns="apart" if form == "separate" else "halves", **SIZES)
    for bits, level in ((4, 1), (4, 4), (8, 4)):
        model = quantized(experts("separate", **SIZES), f"nbits{bits}", 32, zeros=False)
        yield f"{bits} bits, {'int8' if level == ROUNDING else 'f32'}", (1, 256), rounding(model, level)


def main() -> None:
    random = numpy.random.default_rng(0)
    for form, lengths, model in cases():
        fused = graphpass.PassManager(graphpass.parse("fuse-experts")).run(model).model
        runners = {form: session(model), "fused": session(fused)}
        for length in lengths:
            seconds: dict[str, list[float]] = {name: [] for name in runners}
            for turn in range(TURNS):
                tokens = random.standard_normal((1, length, SIZES["hidden"])).astype(numpy.float32)
                for name in sorted(runners, reverse=turn % 2 == 0):
                    start = time.perf_counter()
                    runners[name].run(None, {"x": tokens})
                    seconds[name].append(time.perf_counter() - start)
            ratio = statistics.median(one / other for one, other in zip(*seconds.values(), strict=True))
            times = ", ".join(f"{name} {1000 * statistics.median(held):.1f} ms" for name, held in seconds.items())
            print(f"{length} tokens: {times}: {ratio:.1f} times", flush=True)


if __name__ == "__main__":
    main()
