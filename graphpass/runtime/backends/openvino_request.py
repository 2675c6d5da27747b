"""Compile a model in OpenVINO and run it."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import openvino

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.errors import UnsupportedError
from graphpass.ir.model import Model
from graphpass.ir.quantizers import rounds_activations
from graphpass.runtime.backends.device import Device
from graphpass.runtime.backends.failures import compiling, running
from graphpass.runtime.sessions.inputs import Array

#: Property for dynamic quantization of activations in products with compressed weights; 0 disables it.
ROUNDING = "DYNAMIC_QUANTIZATION_GROUP_SIZE"

#: Properties that disable the defaults of plugins: bf16 arithmetic, u8 caches and quantized activations.
_EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32", ROUNDING: "0"}

#: Compute products of rounded activations in f32. By default the CPU plugin (2026.4.1) computes them in integers; with
#: AVX2 and without VNNI, pairs are added in 16 bits, which saturate and change logits by up to 0.3 of the largest.
INTEGER_PRODUCTS = "LP_TRANSFORMS_MODE"

#: Devices that run models on other devices, which are listed after a colon.
_META = frozenset({"AUTO", "BATCH", "HETERO", "MULTI"})


class OpenVINORequest:
    """A compiled model with its variables."""

    def __init__(self, model: Model, device: Device, core: Any = None) -> None:
        """Compile the model.

        Args:
            model: An `OpenVINOModel`, or an `OnnxModel`, which OpenVINO's frontend reads.
            device: The OpenVINO device and its settings.
            core: The core that compiles the model; by default that of all sessions.

        Raises:
            UnsupportedError: GP321, OpenVINO refuses the model or has no such device.
        """
        self._runtime = f"OpenVINO on {device.name}"
        self._outputs = [port.name for port in model.outputs]
        _require(device.name)
        with compiling(self._runtime):
            properties = _exact_properties(device.name) if device.exact else {}
            if device.exact and computes_in_integers(model, device.name):
                properties[INTEGER_PRODUCTS] = "NO"
            compiling_core = _core() if core is None else core
            options = {**properties, **device.properties}
            self._compiled = compiling_core.compile_model(_native(model, device.name), device.name, options)
        self._request: Any = None
        self._states: dict[str, Any] = {}
        self.renew()

    def infer(self, feeds: dict[str, Array], rooms: dict[str, Array] | None = None) -> dict[str, Array]:
        """See `graphpass.runtime.backends.request.Request`; only a model with variables gets copies of its inputs.

        Returns:
            Outputs by name, without those in ``rooms``; copies of the runtime's memory.
        """
        rooms = rooms or {}
        if self._states:
            # With shared inputs the CPU plugin of 2026.4.1 crashed once on lfm2, in a process that ran many models.
            with running(self._runtime):
                results = self._request.infer(feeds)
            return {name: results[index] for index, name in enumerate(self._outputs)}
        # Shared tensors do not own their memory, so the arrays must live until the request has run.
        arrays = {name: np.asarray(array, order="C") for name, array in feeds.items()}
        with running(self._runtime):
            for name, array in (*arrays.items(), *rooms.items()):
                self._request.set_tensor(name, openvino.Tensor(array, shared_memory=True))
            self._request.infer()
            return {
                name: self._request.get_output_tensor(index).data.copy()
                for index, name in enumerate(self._outputs)
                if name not in rooms
            }

    def renew(self) -> None:
        """Create a new infer request, which discards all state, exposed or not."""
        with compiling(self._runtime):
            self._request = self._compiled.create_infer_request()
        self._states = {state.name: state for state in self._request.query_state()}

    @functools.cached_property
    def settings(self) -> Mapping[str, str]:
        """See `graphpass.runtime.backends.request.Request`."""
        known = set(self._compiled.get_property("SUPPORTED_PROPERTIES"))
        values = {name: self._compiled.get_property(name) for name in _EXACT if name in known}
        return {
            name: value.get_type_name() if isinstance(value, openvino.Type) else str(value)
            for name, value in values.items()
        }

    def property(self, name: str) -> object:
        """Return a property of the compiled model."""
        with compiling(self._runtime):
            return self._compiled.get_property(name)

    def reset_state(self, kept: Collection[str] = ()) -> None:
        """Set all variables except ``kept`` to their initial values."""
        for name, state in self._states.items():
            if name not in kept:
                state.reset()

    def hands_out(self, name: str) -> bool:
        """Return whether a variable can be read; GPU plugins do not expose caches in i8."""
        try:
            _ = self._states[name].state
        except RuntimeError:
            return False
        return True

    def state(self, name: str) -> Array:
        """Return a variable's value in its shape and type; possibly the plugin's own memory."""
        with running(self._runtime):
            content: Array = self._states[name].state.data
        return content

    def set_state(self, name: str, value: Array) -> None:
        """Set a variable.

        Args:
            name: Id of the variable.
            value: New contents, of the variable's element type; they are copied.
        """
        with running(self._runtime):
            self._states[name].state = openvino.Tensor(np.ascontiguousarray(value))


def is_there(device: str) -> bool:
    """Return whether OpenVINO finds a device of this name."""
    return any(name.partition(".")[0] == device.partition(".")[0] for name in _core().available_devices)


def _require(device: str) -> None:
    """Raise if OpenVINO does not find a device, except NPU, without which NPUW runs.

    Raises:
        UnsupportedError: GP321, OpenVINO does not find the device.
    """
    kind, _, listed = device.partition(":")
    named = filter(None, listed.split(",")) if kind in _META else [device]
    missing = next((name for name in named if name not in {"CPU", "NPU"} and not is_there(name)), None)
    if missing is not None:
        message = f"OpenVINO finds no device {missing!r} here, only {', '.join(_core().available_devices)}"
        raise UnsupportedError("GP321", message, "graphpass devices lists devices; WEBGPU and QNN run ONNX models only")


def computes_in_integers(model: Model, device: str) -> bool:
    """Return whether a device computes products of rounded activations in integers by default.

    Args:
        model: The model.
        device: The OpenVINO device.
    """
    return device == "CPU" and rounds_activations(model)


def default_group_size(model: OpenVINOModel, device: str) -> str | None:
    """Return the default group size of dynamic quantization; ``None`` if it is disabled.

    Args:
        model: The model; its runtime options override the plugin's defaults.
        device: The OpenVINO device.

    Raises:
        UnsupportedError: GP321, OpenVINO lists no properties of the device.
    """
    if not is_there(device) or ROUNDING not in _exact_properties(device):
        return None
    path = ["runtime_options", ROUNDING]
    own = model.ov_model.get_rt_info(path).value if model.ov_model.has_rt_info(path) else None
    size = str(_core().get_property(device, ROUNDING) if own is None else own)
    return None if size == "0" else size


@functools.cache
def _core() -> Any:
    return openvino.Core()


@functools.cache
def exact_core() -> Any:
    """Return a core whose CPU plugin is exact also for parts that NPUW compiles."""
    core = openvino.Core()
    core.set_property("CPU", {**_exact_properties("CPU"), INTEGER_PRODUCTS: "NO"})
    return core


def _exact_properties(device: str) -> dict[str, str]:
    if device.startswith("HETERO:"):
        message = f"OpenVINO lists no properties of {device}, so exact arithmetic cannot be set"
        raise UnsupportedError("GP321", message, "name one device")
    supported = _core().get_property(device, "SUPPORTED_PROPERTIES")
    return {name: value for name, value in _EXACT.items() if name in supported}


def _native(model: Model, device: str) -> Any:
    if isinstance(model, OpenVINOModel):
        return _with_empty_starts(model.ov_model) if device == "CPU" else model.ov_model
    assert isinstance(model, OnnxModel)
    with model.on_disk() as path:
        return _core().read_model(str(path))


def _with_empty_starts(native: Any) -> Any:
    """Return a model whose empty initial values are outputs, unless variables share them.

    The CPU plugin (2026.4.1) merges equal initial values, and computes others within the variable. It then fixes the
    variable's length to 0 (``ReadValueWithSubgraph``), unless the value has another user.
    """
    starts = [op.input_value(0) for op in native.get_ops() if op.get_type_name() == "ReadValue" and op.inputs()]
    kinds = [(str(start.get_element_type()), str(start.get_partial_shape())) for start in starts]
    counts = Counter(kinds)
    if not any(counts[kind] == 1 and _is_empty(start) for start, kind in zip(starts, kinds, strict=True)):
        return native
    copy = native.clone()
    reads = [op for op in copy.get_ops() if op.get_type_name() == "ReadValue" and op.inputs()]
    copy.add_results([openvino.opset13.result(op.input_value(0)) for op in reads if _is_empty(op.input_value(0))])
    return copy


def _is_empty(value: Any) -> bool:
    return any(size.is_static and size.get_length() == 0 for size in value.get_partial_shape())
