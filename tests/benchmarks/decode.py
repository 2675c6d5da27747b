"""Step and prefill time on the CPU, side by side: `python tests/benchmarks/decode.py measure FOLDER`.

Compared are, for one PyTorch model with random weights (12 layers, hidden size 1024, 158 million parameters):

    graphpass   its ONNX export, converted for the target cpu
    optimum     optimum's own stateful OpenVINO export
    naive       the ONNX export through to-openvino and make-stateful alone
    onnxruntime the ONNX export on ONNX Runtime, past and present bound as OrtValues that stay where they are

Steps of all four are interleaved, so that a busy machine slows all alike; what counts are the ratios of the medians.
The goal is at least 0.98 of optimum's speed. The exports are made in two environments of their own, which
fixtures/make_models.py lists:

    python tests/benchmarks/decode.py onnx FOLDER
    python tests/benchmarks/decode.py openvino FOLDER
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy

SIZES = {
    "vocab_size": 8192,
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 12,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "max_position_embeddings": 4096,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}
CONTEXT = 2048
STEPS = 40
PREFILLS = 8
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}

#: Feeds token ids ``[1, length]`` after ``past`` others; gives the last position's logits.
Step = Callable[[numpy.ndarray, int], numpy.ndarray]


def make(exporter: str, target: Path) -> None:
    path = Path(__file__).resolve().parents[2] / "fixtures" / "make_models.py"
    spec = importlib.util.spec_from_file_location("make_models", path)
    assert spec is not None
    assert spec.loader is not None
    makers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(makers)
    makers.MODELS = {"decode": ("llama", SIZES, exporter)}
    model = makers.made("decode")
    if exporter == "onnx":
        makers.export_onnx(model, target / "onnx")
    else:
        makers.export_openvino(model, target / "ov-stateful", stateful=True)


def measure(target: Path) -> None:
    engines = {name: build(target) for name, build in ENGINES.items()}
    random = numpy.random.default_rng(0)
    prompt = random.integers(3, SIZES["vocab_size"], [1, CONTEXT])
    prefills: dict[str, list[float]] = {name: [] for name in engines}
    steps: dict[str, list[float]] = {name: [] for name in engines}
    for count in range(PREFILLS + 1):
        for name in _in_turn(list(engines), count):
            prefills[name].append(_timed(engines[name], prompt, 0)[0])
    for count in range(STEPS + 2):
        token = random.integers(3, SIZES["vocab_size"], [1, 1])
        logits = {}
        for name in _in_turn(list(engines), count):
            seconds, logits[name] = _timed(engines[name], token, CONTEXT + count)
            steps[name].append(seconds)
        for name, found in logits.items():
            numpy.testing.assert_allclose(found, logits["optimum"], atol=1e-2, err_msg=name)
    # The first ones allocate and compile.
    prefill = {name: statistics.median(seconds[1:]) for name, seconds in prefills.items()}
    decode = {name: statistics.median(seconds[2:]) for name, seconds in steps.items()}
    print(f"context of {CONTEXT} tokens, f32; time, and how many times as fast graphpass is")
    print(f"{'':12} {'step':>9} {'':>7} {'prefill':>9}")
    for name in engines:
        faster = decode[name] / decode["graphpass"], prefill[name] / prefill["graphpass"]
        print(f"{name:12} {decode[name] * 1e3:6.1f} ms {faster[0]:6.2f}x {prefill[name]:7.2f} s {faster[1]:6.2f}x")


def _in_turn(names: list[str], count: int) -> list[str]:
    """``names``, each of them first, second ... as often as the others: what one leaves in caches slows the next."""
    turned = names[count % len(names) :] + names[: count % len(names)]
    return turned if (count // len(names)) % 2 == 0 else turned[::-1]


def _timed(step: Step, ids: numpy.ndarray, past: int) -> tuple[float, numpy.ndarray]:
    start = time.perf_counter()
    logits = step(ids, past)
    return time.perf_counter() - start, logits


def _converted(target: Path) -> Any:
    import graphpass

    source = graphpass.load(target / "onnx")
    return graphpass.PassManager(graphpass.get_target("cpu").pipeline(source)).run(source).model.ov_model


def _naive(target: Path) -> Any:
    import graphpass

    source = graphpass.load(target / "onnx")
    return graphpass.PassManager(graphpass.parse("to-openvino,make-stateful")).run(source).model.ov_model


def _openvino(model: Any) -> Step:
    import openvino

    request = openvino.Core().compile_model(model, "CPU", EXACT).create_infer_request()

    def step(ids: numpy.ndarray, past: int) -> numpy.ndarray:
        if not past:
            request.reset_state()
        found = request.infer({**_feeds(ids, past), "beam_idx": numpy.zeros(1, numpy.int32)}, share_outputs=True)
        return numpy.array(found["logits"][0, -1])

    return step


def _onnxruntime(target: Path) -> Step:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # Its threads would go on looking for work while the next one is timed.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    model = target / "onnx" / "model.onnx"
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    pasts = [entry for entry in session.get_inputs() if "past" in entry.name]
    kept: dict[str, Any] = {}

    def step(ids: numpy.ndarray, past: int) -> numpy.ndarray:
        binding = session.io_binding()
        for name, value in _feeds(ids, past).items():
            binding.bind_cpu_input(name, value)
        for entry in pasts:
            if not past:
                empty = numpy.zeros([1, entry.shape[1], 0, entry.shape[3]], numpy.float32)
                kept[entry.name] = onnxruntime.OrtValue.ortvalue_from_numpy(empty)
            binding.bind_ortvalue_input(entry.name, kept[entry.name])
        for entry in session.get_outputs():
            binding.bind_output(entry.name, "cpu")
        session.run_with_iobinding(binding)
        outputs = dict(zip((entry.name for entry in session.get_outputs()), binding.get_outputs(), strict=True))
        for entry in pasts:
            kept[entry.name] = outputs[entry.name.replace("past_key_values", "present")]
        return numpy.array(outputs["logits"].numpy()[0, -1])

    return step


def _feeds(ids: numpy.ndarray, past: int) -> dict[str, numpy.ndarray]:
    length = ids.shape[1]
    return {
        "input_ids": ids,
        "attention_mask": numpy.ones([1, past + length], numpy.int64),
        "position_ids": numpy.arange(past, past + length)[None],
    }


ENGINES: dict[str, Callable[[Path], Step]] = {
    "graphpass": lambda target: _openvino(_converted(target)),
    "optimum": lambda target: _openvino(target / "ov-stateful" / "openvino_model.xml"),
    "naive": lambda target: _openvino(_naive(target)),
    "onnxruntime": _onnxruntime,
}


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in {"onnx", "openvino", "measure"}:
        sys.exit(__doc__)
    if sys.argv[1] == "measure":
        measure(Path(sys.argv[2]))
    else:
        make(sys.argv[1], Path(sys.argv[2]))
