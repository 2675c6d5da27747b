"""What trials on NPUW have in common: how it is run on a CPU, and what is said of numbers that it gives."""

from __future__ import annotations

from graphpass.targets.finding import Observation
from graphpass.targets.subprocesses import Finished

__all__ = ["observed", "worker"]

# Left to itself NPUW cuts the model into f16 parts, to which it hands f32 tensors, and fails (2026.4.1): so no
# partitioning, and f32, also of what it would hand on in f16 (F16IC). Besides, f16 here says nothing of an NPU: a CPU
# without it takes bf16, in which its kernel for one query's attention is wrong where keys, values and mask enter a part
# from outside (2026.4.1); and models with experts are cut all the same (NPUW_LLM_GENERATE_MOE_HINT).
_BEFORE = """
import json, sys, numpy, openvino
path, where = sys.argv[1:]
core = openvino.Core()
npuw = {"NPU_USE_NPUW": "YES", "NPUW_DEVICES": "CPU", "NPUW_ONLINE_PIPELINE": "NONE"}
npuw |= {"INFERENCE_PRECISION_HINT": "f32", "NPUW_F16IC": "NO"}
found = {"version": openvino.__version__.split("-")[0]}

def words(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if not line.startswith("Exception from ")), lines[-1])
"""

_BEHIND = """
try:
    difference = compared(core.read_model(path))
    found["difference"] = None if difference is None or not numpy.isfinite(difference) else float(difference)
except RuntimeError as error:
    found["refused"] = words(error)
with open(where, "w") as file:
    json.dump(found, file)
"""


def worker(compared: str) -> str:
    """Code for `graphpass.targets.subprocesses.run_worker`.

    Args:
        compared: Defines ``compared(model)``, which compiles a model with the options ``npuw`` and tells how far its
            results lie from the CPU plugin's, relative to the largest; ``None`` where that is not known. It may use
            ``core``, ``numpy``, ``words(error)`` and the answer, ``found``.
    """
    return _BEFORE + compared + _BEHIND


def observed(done: Finished, tried: str, results: str, tolerance: float) -> Observation:
    """What came of a trial.

    Args:
        done: What the worker left.
        tried: What was done, for people.
        results: What was compared, for people.
        tolerance: The largest difference that is none, relative to the largest result.
    """
    if (refusal := done.refusal(tried)) is not None:
        return refusal
    tried, difference = done.with_version(tried), done.found["difference"]
    if difference is None:
        return Observation(tried, wrong=f"its {results} are NaN", ran=True)
    differs = f"{results} differ by {difference:.1e} of the largest"
    wrong = f"its {differs}" if difference > tolerance else None
    return Observation(f"{tried}: {differs}", wrong=wrong, ran=True)
