"""Times a layer of experts as exporters write it, and in MoE of ONNX Runtime.

    python tests/benchmarks/experts.py

One layer of 32 experts, of which a token has 4, hidden size 1024, inner size 768, f32. Each form and the operator take
turns on 2 threads; printed are medians in milliseconds, and how many times as long the form takes. Gathered weights are
timed for short prompts alone: 256 tokens copy 10 GB of them.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import numpy
import onnxruntime

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.expert_graphs import experts

import graphpass

SIZES = {"hidden": 1024, "inner": 768, "count": 32, "chosen": 4}
LENGTHS = {"separate": (1, 256), "dense": (1, 256), "gathered": (1, 16)}
TURNS = 15


def session(model: graphpass.Model) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    # Threads of the model that waits for its turn would take the cores.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    source = model.proto.SerializeToString()
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def main() -> None:
    random = numpy.random.default_rng(0)
    for form, lengths in LENGTHS.items():
        model = experts(form, columns="apart" if form == "separate" else "halves", **SIZES)
        fused = graphpass.PassManager(graphpass.parse("fuse-experts")).run(model).model
        runners = {form: session(model), "MoE": session(fused)}
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
