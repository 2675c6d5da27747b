"""Tries a model on a GPU: compiles it and looks for ``kv_cache`` in the runtime graph.

Where ``GRAPHPASS_GPU_ENVIRONMENT`` names a folder, the Python in its ``venv`` is used with its ``env.sh``: an
environment that runs the GPU plugin without a GPU.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from graphpass.errors import UsageError
from graphpass.targets.finding import Observation
from graphpass.targets.subprocesses import run_worker

if TYPE_CHECKING:
    from graphpass.dialects.openvino.model import OpenVINOModel

__all__ = ["ENVIRONMENT", "observe"]

#: The environment variable that names an environment with a GPU plugin.
ENVIRONMENT = "GRAPHPASS_GPU_ENVIRONMENT"

_WORKER = """
import json, sys, openvino
path, where = sys.argv[1:]
core = openvino.Core()
found = {"devices": core.available_devices, "version": openvino.__version__.split("-")[0]}
if any(name.split(".")[0] == "GPU" for name in found["devices"]):
    try:
        compiled = core.compile_model(core.read_model(path), "GPU")
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        found["refused"] = next((line for line in lines if not line.startswith("Exception from ")), lines[-1])
    else:
        found["reads"] = []
        for op in compiled.get_runtime_model().get_ops():
            if op.get_rt_info()["layerType"].value == "kv_cache":
                # Keys stay behind a Gather where the plugin has no beam table for them.
                while op.inputs() and op.get_rt_info()["layerType"].value != "read_value":
                    op = op.input_value(0).get_node()
                found["reads"].append(op.get_friendly_name())
with open(where, "w") as file:
    json.dump(found, file)
"""


def observe(model: OpenVINOModel) -> Observation | str:
    """Compile ``model`` and see which variables feed a ``kv_cache``; a sentence where there is no GPU.

    Raises:
        UsageError: GP228, the environment variable names no environment.
    """
    done = run_worker(_WORKER, model, _environment())
    tried = "compiled on the GPU plugin"
    if (refusal := done.refusal(tried)) is not None:
        return refusal
    if not any(name.split(".")[0] == "GPU" for name in done.found["devices"]):
        return f"there is no GPU here, and {ENVIRONMENT} names no environment that stands in for one"
    reads = set(done.found["reads"])
    fused = {node.attributes["variable"] for node in model.graph.of_op("ReadValue") if node.name in reads}
    return Observation(done.with_version(tried), frozenset(fused), "cache")


def _environment() -> Path | None:
    given = os.environ.get(ENVIRONMENT)
    if not given:
        return None
    for name in ("env.sh", "venv/bin/python"):
        if not os.path.isfile(os.path.join(given, name)):
            hint = "let it name a folder with env.sh and venv, or unset it"
            raise UsageError("GP228", f"{ENVIRONMENT} is {given}, which has no {name}", hint)
    return Path(given)
