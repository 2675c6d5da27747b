"""Trial on a GPU, which detects ``kv_cache``.

If ``GRAPHPASS_GPU_ENVIRONMENT`` names a folder, the trial runs with its ``env.sh`` and the Python in its ``venv``, an
environment that runs the GPU plugin without a GPU.
"""

from __future__ import annotations

from importlib import metadata

from graphpass.engine.findings import Observation
from graphpass.ir.model import Model
from graphpass.runtime.devices.stand_in import ENVIRONMENT, stand_in
from graphpass.targets.worker import run_worker

#: The version whose matcher (kv_cache_fusion.cpp) fuses a trim only if it begins at 1.
BEGINS_AT_ONE = "2026.4.1"

_WORKER = """
def run():
    if not any(name.split(".")[0] == "GPU" for name in core.available_devices):
        return
    answer["reads"] = reads = []
    for op in core.compile_model(core.read_model(path), "GPU").get_runtime_model().get_ops():
        if op.get_rt_info()["layerType"].value == "kv_cache":
            # Without a beam table, a Gather is between the keys' ReadValue and kv_cache.
            while op.inputs() and op.get_rt_info()["layerType"].value != "read_value":
                op = op.input_value(0).get_node()
            reads.append(op.get_friendly_name())
"""


def observe(model: Model) -> Observation | str:
    """Compile ``model`` on the GPU plugin.

    Returns:
        The observation, with the ids of variables of ``kv_cache``; the reason without a GPU.

    Raises:
        UsageError: GP228, ``GRAPHPASS_GPU_ENVIRONMENT`` is not the folder of an environment.
    """
    done = run_worker(_WORKER, model, "compiled on the GPU plugin", stand_in())
    if done.refusal is not None:
        return done.refusal
    if "reads" not in done.answer:
        return f"this machine has no GPU, and {ENVIRONMENT} names no environment that replaces one"
    reads = set(done.answer["reads"])
    fused = frozenset(node.attributes["variable"] for node in model.graph.of_op("ReadValue") if node.name in reads)
    return Observation(done.tried, fused, "cache")


def plugin_version() -> str | None:
    """Return the version of the GPU plugin; ``None`` without a GPU or its environment.

    Raises:
        UsageError: GP228, ``GRAPHPASS_GPU_ENVIRONMENT`` is not the folder of an environment.
    """
    from graphpass.runtime.backends.openvino_request import is_there

    is_installed = stand_in() is not None or is_there("GPU")
    return metadata.version("openvino") if is_installed else None
