"""Steps and prompts on ONNX Runtime, exported and fused: `python tests/benchmarks/ort.py [LAYERS]`.

A llama of real shapes (hidden 896, 14 heads over 2 of 64, MLP 4864, vocabulary 32000; 8 layers, 0.18 billion
parameters) in f32, with random weights:

    export     past and present of optimum's model, attention decomposed
    any        target ort: attention with a bias, past and present one buffer
    right      target ort{padding=right}: attention counts tokens, past and present one buffer
    i8, i4     the same, with keys and values in 8 and 4 bits
    batches    as any, with batch=any

Models take turns, so that a busy machine slows all alike; ratios are of medians of one run. Peak memory is that of a
process each. The export's prompts of 8192 tokens need more memory than most machines have. Drafts are 8 tokens of each
of 2 rows after 2048 others; `any` takes them one by one.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy
import onnxruntime

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.scale import Size, scaled

import graphpass
from graphpass.engine.pipeline import parse_target

CAPACITY = 8320
LENGTHS = (256, 2048, 8192)
PROMPTS = (256, 1024, 4096)
STEPS, TURNS = 9, 3
ROWS, DRAFTS, BEHIND = 2, 8, 2048
KINDS = {
    "export": "",
    "any": "padding=any",
    "right": "padding=right",
    "i8": "padding=right,cache-precision=i8",
    "i4": "padding=right,cache-precision=i4",
    "batches": "batch=any",
}
TYPES = {"tensor(float)": numpy.float32, "tensor(int8)": numpy.int8, "tensor(uint8)": numpy.uint8}


def write(folder: Path, layers: int) -> dict[str, Path]:
    size = Size(896, 14, 2, 64, 4864, 32000, layers, positions=CAPACITY)
    source = scaled("llama", size, folder / "export", seed=0)
    files = {"export": source}
    for name, option in KINDS.items():
        if option:
            model = graphpass.load(source)
            passes = parse_target(f"ort{{{option},context={CAPACITY}}}").pipeline(model)
            result = graphpass.PassManager(passes).run(model)
            (folder / name).mkdir()
            graphpass.save(result.model, folder / name / "model.onnx")
            files[name] = folder / name / "model.onnx"
            seconds = sum(record.seconds for record in result.records)
            print(f"{name:8} {len(result.model.graph.nodes)} nodes, {seconds:.1f} s to fuse")
    return files


class Runner:
    """Runs one model; pasts and presents are one buffer if it was fused."""

    def __init__(self, file: Path) -> None:
        self.shares = file.parent.name != "export"
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        # Threads of the models that wait for their turn would take the cores.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        self.inputs = {port.name: port for port in self.session.get_inputs()}
        self.pasts = [name for name in self.inputs if name.startswith("past")]
        self.buffers: dict[str, Any] = {}

    def fill(self, length: int, rows: int = 1) -> None:
        numbers = numpy.random.default_rng(0)
        for name in self.pasts:
            kind, size = TYPES[self.inputs[name].type], self.inputs[name].shape[3]
            held = numbers.standard_normal((rows, 2, length, size), numpy.float32)
            if kind != numpy.float32:
                held = numbers.integers(0, 100, held.shape).astype(kind)
            if self.shares:
                whole = numpy.zeros((rows, 2, CAPACITY, size), kind)
                whole[:, :, :length] = held
                held = whole
            self.buffers[name] = onnxruntime.OrtValue.ortvalue_from_numpy(held)

    def run(self, past: int, length: int, rows: int = 1) -> float:
        binding = self.session.io_binding()
        feeds = {
            "input_ids": numpy.full((rows, length), 7, numpy.int64),
            "attention_mask": numpy.ones((rows, past + length), numpy.int64),
            "position_ids": numpy.arange(past, past + length)[None].repeat(rows, 0),
        }
        for name, array in feeds.items():
            if name in self.inputs:
                binding.bind_cpu_input(name, array)
        for name in self.pasts:
            held = self.buffers[name]
            binding.bind_ortvalue_input(name, held)
            present = name.replace("past_key_values", "present")
            if self.shares:
                binding.bind_ortvalue_output(present, held)
            else:
                binding.bind_output(present)
        binding.bind_output("logits")
        start = time.perf_counter()
        self.session.run_with_iobinding(binding)
        return time.perf_counter() - start


def steps(files: dict[str, Path]) -> None:
    runners = {name: Runner(file) for name, file in files.items()}
    order = random.Random(0)
    for length in LENGTHS:
        seconds: dict[str, list[float]] = {name: [] for name in runners}
        for name, runner in runners.items():
            runner.fill(length)
            size = sum(buffer.numpy().nbytes for buffer in runner.buffers.values())
            print(f"caches of {length} {name:>8} {size / 2**20:8.1f} MB")
        for _ in range(STEPS + 2):
            # Of two orders, each begins with the model that ran last.
            for name in order.sample(list(runners), len(runners)):
                seconds[name].append(runners[name].run(length, 1))
        show(f"step at {length}", {name: statistics.median(found[2:]) for name, found in seconds.items()})


def prompts(files: dict[str, Path]) -> None:
    runners = {name: Runner(file) for name, file in files.items()}
    for length in PROMPTS:
        seconds: dict[str, list[float]] = {name: [] for name in runners}
        for runner in runners.values():
            runner.fill(0)
        for turn in range(TURNS):
            for name in sorted(runners, reverse=turn % 2 == 0):
                seconds[name].append(runners[name].run(0, length))
        show(f"prompt of {length}", {name: statistics.median(found) for name, found in seconds.items()})


def drafts(files: dict[str, Path]) -> None:
    runners = {name: Runner(files[name]) for name in ("export", "any", "batches")}
    seconds: dict[str, list[float]] = {name: [] for name in runners}
    for runner in runners.values():
        runner.fill(BEHIND, ROWS)
    for turn in range(TURNS + 2):
        for name in sorted(runners, reverse=turn % 2 == 0):
            size = 1 if name == "any" else DRAFTS
            runs = (runners[name].run(BEHIND + place, size, ROWS) for place in range(0, DRAFTS, size))
            seconds[name].append(sum(runs))
    show(f"drafts of {DRAFTS}", {name: statistics.median(found[1:]) for name, found in seconds.items()})


def prompt(file: Path, length: int, results: Any) -> None:
    runner = Runner(file)
    runner.fill(0)
    runner.run(0, 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    runner.run(0, length)
    results.put((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)


def memory(files: dict[str, Path]) -> None:
    context = multiprocessing.get_context("spawn")
    for name, file in files.items():
        results = context.Queue()
        process = context.Process(target=prompt, args=(file, PROMPTS[-1], results))
        process.start()
        print(f"prompt of {PROMPTS[-1]} {name:>8} raises the peak memory by {results.get():8.0f} MB", flush=True)
        process.join()


def show(what: str, seconds: dict[str, float]) -> None:
    cells = (f"{name:>8} {value * 1e3:8.1f} ms {seconds['export'] / value:5.2f}x" for name, value in seconds.items())
    print(f"{what:16}" + "".join(cells), flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        made = write(Path(place), int(sys.argv[1]) if len(sys.argv) > 1 else 8)
        print(json.dumps({"onnxruntime": onnxruntime.__version__, "layers": sys.argv[1:] or ["8"]}))
        # A process begins with the peak of the one that started it.
        memory(made)
        steps(made)
        prompts(made)
        drafts(made)
