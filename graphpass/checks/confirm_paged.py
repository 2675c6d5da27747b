"""Tries a model with paged attention: the transformation that openvino.genai's default backend starts with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.checks.finding import Observation
from graphpass.checks.subprocesses import run_worker

if TYPE_CHECKING:
    from graphpass.openvino_model import OpenVINOModel

__all__ = ["observe"]

_WORKER = """
import json, sys, openvino
from openvino._offline_transformations import paged_attention_transformation
path, where = sys.argv[1:]
model = openvino.Core().read_model(path)
found = {"version": openvino.__version__}
try:
    paged_attention_transformation(model)
    found["left"] = [op.get_friendly_name() for op in model.get_ops() if op.get_type_name() == "ReadValue"]
except RuntimeError as error:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    found["refused"] = next((line for line in reversed(lines) if not line.startswith("Exception from ")), lines[-1])
with open(where, "w") as file:
    json.dump(found, file)
"""


def observe(model: OpenVINOModel) -> Observation | str:
    """Run SDPAToPagedAttention and see which variables are left."""
    done = run_worker(_WORKER, model)
    tried = "ran SDPAToPagedAttention on a copy"
    if done.crashed is not None:
        return Observation(tried, refused=done.crashed)
    tried = f"{tried}, openvino {done.found['version']}"
    if "refused" in done.found:
        return Observation(tried, refused=done.found["refused"])
    left = set(done.found["left"])
    reads = model.graph.of_op("ReadValue")
    return Observation(tried, frozenset(node.attributes["variable"] for node in reads if node.name not in left), "cache")
