"""Run a model of static shapes on Qualcomm's HTP, by ONNX Runtime's QNN provider."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphpass.errors import UnsupportedError
from graphpass.runtime.backends.failures import compiling, running

if TYPE_CHECKING:
    from graphpass.dialects.onnx.model import OnnxModel
    from graphpass.runtime.sessions.inputs import Array

_PROVIDER = "QNNExecutionProvider"
_FATAL_ONLY = 4

#: HTP v73 of the Snapdragon 8 Gen 3 and X Elite. Without SoC and architecture the emulator fails with QNN error 1002
#: (onnxruntime-qnn 2.7.0); a device detects its own.
_SOC = {"soc_model": "60", "htp_arch": "73"}

#: HTP computes f32 models in f16.
_IN_F16 = {"enable_htp_fp16_precision": "1"}

#: Reject models with a node that would run on the CPU.
_NO_FALLBACK = {"session.disable_cpu_ep_fallback": "1"}

_RUNTIME = "ONNX Runtime's QNN provider"


class QnnRequest:
    """A model compiled for HTP; see `graphpass.runtime.backends.request.Request`."""

    def __init__(self, model: OnnxModel) -> None:
        """Compile the model for HTP, on the device or its emulator.

        Raises:
            UnsupportedError: GP321, onnxruntime-qnn is not installed, or a node would run on the CPU.
        """
        self.settings: Mapping[str, str] = {"device": "QNN"}
        with compiling(_RUNTIME), model.on_disk() as path:
            self._session: Any = _session(path, _NO_FALLBACK)
        self._names = [output.name for output in self._session.get_outputs()]

    def infer(self, feeds: Mapping[str, Array], rooms: Mapping[str, Array] | None = None) -> dict[str, Array]:
        arrays = {name: np.ascontiguousarray(array) for name, array in feeds.items()}
        with running(_RUNTIME):
            results: dict[str, Array] = dict(zip(self._names, self._session.run(None, arrays), strict=True))
        for name, room in (rooms or {}).items():
            room[...] = results.pop(name)
        return results


def nodes_on_cpu(path: Path) -> list[tuple[str, str]]:
    """Return operator and name of nodes that the CPU provider would run.

    Raises:
        UnsupportedError: GP321, onnxruntime-qnn is not installed, or refuses the model.
    """
    with compiling(_RUNTIME):
        session = _session(path, {"session.record_ep_graph_assignment_info": "1"})
    parts = session.get_provider_graph_assignment_info()
    return [(node.op_type, node.name) for part in parts if part.ep_name != _PROVIDER for node in part.get_nodes()]


def compile_for_htp(source: Path, destination: Path) -> None:
    """Compile a model for HTP; write a model of EPContext nodes, and the context's file.

    Args:
        source: An ``.onnx`` file of static shapes.
        destination: The ``.onnx`` file to write; the context is written to the same folder.

    Raises:
        UnsupportedError: GP321, onnxruntime-qnn is not installed, or a node would run on the CPU.
    """
    context = {"ep.context_enable": "1", "ep.context_embed_mode": "0", "ep.context_file_path": str(destination)}
    with compiling(_RUNTIME):
        _session(source, _NO_FALLBACK | context)


def _session(path: Path, entries: Mapping[str, str]) -> Any:
    import onnxruntime

    plugin, device = _device()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _FATAL_ONLY
    for key, value in entries.items():
        options.add_session_config_entry(key, value)
    # The emulator is listed as a CPU.
    soc = _SOC if device.device.type.name == "CPU" else {}
    options.add_provider_for_devices([device], {"backend_path": plugin.get_qnn_htp_path(), **_IN_F16, **soc})
    return onnxruntime.InferenceSession(str(path), options, enable_fallback=False)


@functools.cache
def _device() -> tuple[Any, Any]:
    """Return the plugin's module and its device; an NPU is preferred to the emulator.

    Raises:
        UnsupportedError: GP321, onnxruntime-qnn is not installed, or lists no device.
    """
    import onnxruntime

    try:
        import onnxruntime_qnn
    except ImportError as error:
        reason = "device QNN requires onnxruntime-qnn, which is not installed"
        raise UnsupportedError("GP321", reason, "pip install 'graphpass[qnn]'") from error
    onnxruntime.set_default_logger_severity(_FATAL_ONLY)
    onnxruntime.register_execution_provider_library(_PROVIDER, onnxruntime_qnn.get_library_path())
    devices = [each for each in onnxruntime.get_ep_devices() if each.ep_name == _PROVIDER]
    if not devices:
        raise UnsupportedError("GP321", "onnxruntime-qnn lists no device", "install the driver of the NPU")
    return onnxruntime_qnn, max(devices, key=lambda each: each.device.type.name == "NPU")
