"""Trial on the CPU plugin, which detects fused attention."""

from __future__ import annotations

from graphpass.engine.findings import Observation
from graphpass.ir.model import Model


def observe(model: Model) -> Observation:
    """Compile ``model`` on the CPU plugin.

    Returns:
        The observation, with the names of operators that are fused into attention kernels.
    """
    import openvino

    from graphpass.dialects.openvino.model import OpenVINOModel
    from graphpass.errors import UnsupportedError
    from graphpass.runtime.backends.failures import compiling

    assert isinstance(model, OpenVINOModel)
    tried = "compiled on the CPU plugin"
    try:
        with compiling("OpenVINO on CPU"):
            compiled = openvino.Core().compile_model(model.ov_model, "CPU")
    except UnsupportedError as error:
        return Observation(tried, refused=error.message)
    fused: set[str] = set()
    for op in compiled.get_runtime_model().get_ops():
        info = op.get_rt_info()
        if info["layerType"].value.startswith("ScaledDotProductAttention"):
            fused.update(info["originalLayersNames"].value.split(","))
    names = {op.get_friendly_name() for op in model.ov_model.get_ops()}
    version = openvino.__version__.split("-")[0]
    return Observation(f"{tried}, openvino {version}", frozenset(fused & names))
