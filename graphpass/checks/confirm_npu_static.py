"""Tries a model of static shapes on NPUW's generic path, which runs on a CPU, and compares it with the CPU plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.checks.finding import Observation
from graphpass.checks.subprocesses import run_worker

if TYPE_CHECKING:
    from graphpass.openvino_model import OpenVINOModel

__all__ = ["observe"]

#: Largest difference of an output, relative to its largest element.
_TOLERANCE = 1e-3

# Left to itself NPUW cuts the model into f16 parts, to which it hands f32 tensors, and fails (2026.4.1): so no
# partitioning, and f32.
_WORKER = """
import json, sys, numpy, openvino
path, where = sys.argv[1:]
core = openvino.Core()
npuw = {"NPU_USE_NPUW": "YES", "NPUW_DEVICES": "CPU", "NPUW_ONLINE_PIPELINE": "NONE", "INFERENCE_PRECISION_HINT": "f32"}
found = {"version": openvino.__version__.split("-")[0]}

def words(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if not line.startswith("Exception from ")), lines[-1])

def filled(port):
    random = numpy.random.default_rng(0)
    name, shape, dtype = port.get_any_name(), list(port.shape), port.element_type.to_dtype()
    if name == "input_ids":
        return random.integers(3, 64, shape)
    if name == "position_ids":
        return numpy.broadcast_to(numpy.arange(shape[-1]), shape).copy()
    return numpy.ones(shape, dtype) if "mask" in name else random.standard_normal(shape).astype(dtype)

model = core.read_model(path)
try:
    compiled = core.compile_model(model, "NPU", npuw)
    feeds = {port.get_any_name(): filled(port) for port in model.inputs}
    actual = compiled(feeds)
    expected = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(feeds)
    largest = 0.0
    for index in range(len(model.outputs)):
        difference = numpy.abs(actual[index] - expected[index]).max() / max(numpy.abs(expected[index]).max(), 1e-9)
        largest = max(largest, float(difference)) if numpy.isfinite(difference) else None
        if largest is None:
            break
    found["difference"] = largest
except RuntimeError as error:
    found["refused"] = words(error)
with open(where, "w") as file:
    json.dump(found, file)
"""


def observe(model: OpenVINOModel) -> Observation | str:
    """Compile ``model`` with NPUW, without ``NPUW_LLM``, and compare a run in f32."""
    done = run_worker(_WORKER, model)
    tried = "compiled on NPUW's generic path on the CPU, and ran once"
    if (refusal := done.refusal(tried)) is not None:
        return refusal
    difference = done.found["difference"]
    if difference is None:
        return Observation(done.with_version(tried), wrong="an output is NaN", ran=True)
    told = f"{done.with_version(tried)}: outputs differ by {difference:.1e} of the largest"
    if difference > _TOLERANCE:
        return Observation(told, wrong=f"its outputs differ by {difference:.1e} of the largest", ran=True)
    return Observation(told, ran=True)
