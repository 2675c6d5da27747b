"""Try a model on a GPU, and look for ``kv_cache``.

If ``GRAPHPASS_GPU_ENVIRONMENT`` names a folder, the Python in its ``venv`` is used with its ``env.sh``: an environment
that runs the GPU plugin without a GPU.
"""

from __future__ import annotations

import os
from pathlib import Path

from graphpass.engine.findings import Observation
from graphpass.errors import UsageError
from graphpass.ir.model import Model
from graphpass.targets.worker import run_worker

#: The environment variable that names an environment with a GPU plugin.
ENVIRONMENT = "GRAPHPASS_GPU_ENVIRONMENT"

_WORKER = """
def run():
    if not any(name.split(".")[0] == "GPU" for name in core.available_devices):
        return
    found["reads"] = reads = []
    for op in core.compile_model(core.read_model(path), "GPU").get_runtime_model().get_ops():
        if op.get_rt_info()["layerType"].value == "kv_cache":
            # Keys are read through a Gather if the plugin has no beam table for them.
            while op.inputs() and op.get_rt_info()["layerType"].value != "read_value":
                op = op.input_value(0).get_node()
            reads.append(op.get_friendly_name())
"""


def observe(model: Model) -> Observation | str:
    """Compile ``model`` and list the variables of ``kv_cache``; return a sentence without a GPU.

    Raises:
        UsageError: GP228, the environment variable names no environment.
    """
    done = run_worker(_WORKER, model, "compiled on the GPU plugin", _environment())
    if done.refusal is not None:
        return done.refusal
    if "reads" not in done.found:
        return f"there is no GPU here, and {ENVIRONMENT} names no environment that stands in for one"
    reads = set(done.found["reads"])
    fused = frozenset(node.attributes["variable"] for node in model.graph.of_op("ReadValue") if node.name in reads)
    return Observation(done.tried, fused, "cache")


def _environment() -> Path | None:
    given = os.environ.get(ENVIRONMENT)
    if not given:
        return None
    for name in ("env.sh", "venv/bin/python"):
        if not os.path.isfile(os.path.join(given, name)):
            hint = "let it name a folder with env.sh and venv, or unset it"
            raise UsageError("GP228", f"{ENVIRONMENT} is {given}, which has no {name}", hint)
    return Path(given)
