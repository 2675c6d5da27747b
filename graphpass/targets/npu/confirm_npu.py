"""Tries a model on NPUW, which runs on a CPU: compiles it, and compares what it generates with the CPU plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.targets.npu.confirm_npuw import observed, worker
from graphpass.targets.subprocesses import run_worker

if TYPE_CHECKING:
    from graphpass.dialects.openvino.model import OpenVINOModel
    from graphpass.targets.finding import Observation

__all__ = ["observe"]

#: Largest difference of logits, relative to the largest logit: caches are kept in f16.
_TOLERANCE = 1e-2

_WORKER = worker("""
exact = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
npuw |= {"NPUW_LLM": "YES", "NPUW_LLM_MAX_PROMPT_LEN": "64", "NPUW_LLM_MIN_RESPONSE_LEN": "64"}

def generate(compiled, forced):
    request = compiled.create_infer_request()
    names = {name for port in compiled.inputs for name in port.get_names()}
    tokens, past, chosen, logits = [5, 9, 17, 33, 21], 0, [], []
    for step in range(8):
        length = len(tokens)
        feeds = {
            "input_ids": numpy.array([tokens]),
            "attention_mask": numpy.ones((1, past + length), numpy.int64),
            "position_ids": numpy.arange(past, past + length)[None],
            "token_type_ids": numpy.zeros((1, length), numpy.int64),
            "beam_idx": numpy.zeros(1, numpy.int32),
        }
        request.infer({name: value for name, value in feeds.items() if name in names})
        logits.append(request.get_tensor("logits").data[0, -1].astype(numpy.float64))
        chosen.append(int(logits[-1].argmax()))
        past += length
        tokens = [chosen[-1] if forced is None else forced[step]]
    return chosen, numpy.stack(logits)

def compared(model):
    compiled = core.compile_model(model, "NPU", npuw)
    forced, expected = None, None
    try:
        forced, expected = generate(core.compile_model(model, "CPU", exact), None)
    except RuntimeError as error:
        found["unknown"] = words(error)
    _, actual = generate(compiled, forced)
    return None if expected is None else numpy.abs(actual - expected).max() / numpy.abs(expected).max()
""")


def observe(model: OpenVINOModel) -> Observation | str:
    """Compile ``model`` with NPUW and compare the logits of 8 steps, in f32 with caches in f16."""
    done = run_worker(_WORKER, model)
    if "unknown" in done.found and "refused" not in done.found:
        return f"the CPU plugin, which it would be compared with, fails: {done.found['unknown']}"
    return observed(done, "compiled with NPUW on the CPU, and ran 8 steps", "logits", _TOLERANCE)
