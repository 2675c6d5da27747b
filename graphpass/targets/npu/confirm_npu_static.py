"""Tries a model of static shapes on NPUW's generic path, which runs on a CPU, and compares it with the CPU plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.targets.npu.confirm_npuw import observed, worker
from graphpass.targets.subprocesses import run_worker

if TYPE_CHECKING:
    from graphpass.dialects.openvino.model import OpenVINOModel
    from graphpass.targets.finding import Observation

__all__ = ["observe"]

#: Largest difference of an output, relative to its largest element.
_TOLERANCE = 1e-3

_WORKER = worker("""
def filled(port):
    random = numpy.random.default_rng(0)
    name, shape, dtype = port.get_any_name(), list(port.shape), port.element_type.to_dtype()
    if name == "input_ids":
        return random.integers(3, 64, shape)
    if name == "position_ids":
        return numpy.broadcast_to(numpy.arange(shape[-1]), shape).copy()
    return numpy.ones(shape, dtype) if "mask" in name else random.standard_normal(shape).astype(dtype)

def compared(model):
    compiled = core.compile_model(model, "NPU", npuw)
    feeds = {port.get_any_name(): filled(port) for port in model.inputs}
    actual = compiled(feeds)
    expected = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(feeds)
    # Of NaN and a number numpy's max makes NaN, Python's does not.
    return numpy.max([
        numpy.abs(actual[index] - expected[index]).max() / max(numpy.abs(expected[index]).max(), 1e-9)
        for index in range(len(model.outputs))
    ])
""")


def observe(model: OpenVINOModel) -> Observation | str:
    """Compile ``model`` with NPUW, without ``NPUW_LLM``, and compare a run in f32."""
    tried = "compiled on NPUW's generic path on the CPU, and ran once"
    return observed(run_worker(_WORKER, model), tried, "outputs", _TOLERANCE)
