"""Run an ONNX model in ONNX Runtime, on the CPU or by WebGPU."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import threading
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime

from graphpass.dialects.onnx.tensors import graphs
from graphpass.errors import UnsupportedError
from graphpass.ir.bodies import inlined
from graphpass.ir.quantizers import rounds_activations
from graphpass.runtime.backends.failures import compiling, running

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import onnx

    from graphpass.dialects.onnx.model import OnnxModel
    from graphpass.runtime.sessions.inputs import Array


#: Suffix of names of kernel events in a profile.
_KERNEL = "_kernel_time"

_FATAL_ONLY = 4  # errors are raised, so they need no log

#: Let threads sleep between runs. By default (1.32) they spin, and take cores from the session that runs next, for
#: example the target of a draft model. With a draft of one layer of eight, on 2 cores, speculation has 0.93 times the
#: throughput of plain decoding by default, and 1.6 times with this option.
_SHARED_CORES = {"session.force_spinning_stop": "1"}

#: Compute products with compressed weights in f32. By default ONNX Runtime (1.31) fuses DequantizeLinear and MatMul to
#: MatMulNBits, and rounds its activations to 8 bits, which changes logits by 0.1.
_EXACT = {"session.qdq_matmulnbits_accuracy_level": "1"}
_ACCURACY, _IN_F32 = "accuracy_level", 1

#: Compute products of u8 and s8 exactly. By default, processors with AVX2 and without VNNI add pairs of them in 16
#: bits, which saturate (``kOrtSessionOptionsAvx2PrecisionMode``) and change logits by 0.2. With this setting, ONNX
#: Runtime (1.32) refuses DequantizeLinear of s8 in blocks: it adds a zero point of another rank.
_UNSATURATED = {"session.x64quantprecision": "1"}

#: The same for experts in QMoE, whose 8-bit kernel ignores accuracy_level (1.32, ``moe_quantization_cpu.cc``). It reads
#: this environment variable when a model is opened.
_EXPERTS, _EXPERTS_IN_F32 = "ORT_QMOE_CPU_QNBIT_GEMM", "fp32"

#: Read weights from the mapped file. By default ONNX Runtime copies weights of products into another layout.
_IN_PLACE = {"session.disable_prepacking": "1"}
#: Optimizer that folds weights when a model is opened, and allocates the results.
_FOLDING = "ConstantFolding"
_packs = ContextVar("packs", default=True)


_opening = threading.Lock()


@contextlib.contextmanager
def _exact_experts(is_wanted: bool) -> Iterator[None]:
    """Open models in the ``with`` block with QMoE in f32, if wanted."""
    if not is_wanted:
        yield
        return
    with _opening:
        before = os.environ.get(_EXPERTS)
        os.environ[_EXPERTS] = _EXPERTS_IN_F32
        try:
            yield
        finally:
            if before is None:
                del os.environ[_EXPERTS]
            else:
                os.environ[_EXPERTS] = before


@contextlib.contextmanager
def weights_in_place() -> Iterator[None]:
    """Open models in the ``with`` block without copies of weights; long prompts are slower."""
    token = _packs.set(False)
    try:
        yield
    finally:
        _packs.reset(token)


def _in_utf8(path: Path) -> str:
    """Return a path as text.

    Raises:
        UnsupportedError: GP321, the path is not UTF-8.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        reason = f"ONNX Runtime requires paths in UTF-8, got {path}"
        raise UnsupportedError("GP321", reason, "rename the file or its folder") from error
    return str(path)


def _has_blocks(model: OnnxModel) -> bool:
    return any(node.attributes.get("block_size") for node in inlined(model).graph.of_op("DequantizeLinear"))


class OnnxRuntimeRequest:
    """A model opened in ONNX Runtime."""

    def __init__(self, model: OnnxModel, exact: bool, device: str = "CPU", profile: Path | None = None) -> None:
        """Open the model.

        Args:
            model: The model to run.
            exact: Whether to compute in f32, also with compressed weights, regardless of the model's accuracy_level.
            device: ``"CPU"`` or ``"WEBGPU"``.
            profile: A folder for the profile, which `ran` reads.

        Raises:
            UnsupportedError: GP321, ONNX Runtime refuses the model, or has no such device.
        """
        self.settings = {"exact": str(exact)} if device == "CPU" else {"exact": str(exact), "device": device}
        options = onnxruntime.SessionOptions()
        options.log_severity_level = _FATAL_ONLY
        options.use_deterministic_compute = True
        entries = {**_SHARED_CORES, **(_EXACT if exact else {}), **({} if _packs.get() else _IN_PLACE)}
        if exact and rounds_activations(model) and not _has_blocks(model):
            entries |= _UNSATURATED
        for key, value in entries.items():
            options.add_session_config_entry(key, value)
        if profile is not None:
            options.enable_profiling, options.profile_file_prefix = True, str(profile / "profile")
        if device != "CPU":
            options.add_provider_for_devices([_webgpu()], {})
        if exact:
            model = _in_f32(model)
        is_mixed = exact and any(node.op_type == "QMoE" for graph in graphs(model.proto) for node in graph.node)
        with compiling("ONNX Runtime"), model.on_disk() as path, _exact_experts(is_mixed):
            self._session: Any = onnxruntime.InferenceSession(
                _in_utf8(path),
                options,
                providers=["CPUExecutionProvider"] if device == "CPU" else None,
                disabled_optimizers=[] if _packs.get() else [_FOLDING],
                enable_fallback=False,
            )
        self._names = [output.name for output in self._session.get_outputs()]
        self._run_options = onnxruntime.RunOptions()
        self._run_options.log_severity_level = _FATAL_ONLY

    def infer(self, feeds: Mapping[str, Array], rooms: Mapping[str, Array] | None = None) -> dict[str, Array]:
        rooms = rooms or {}
        binding = self._session.io_binding()
        # The binding does not own its memory, so the arrays must live until it has run.
        arrays = {name: np.asarray(array, order="C") for name, array in feeds.items()}
        with running("ONNX Runtime"):
            for name, array in arrays.items():
                binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
            for name in self._names:
                if name in rooms:
                    room = rooms[name]
                    binding.bind_output(name, "cpu", 0, room.dtype, room.shape, room.ctypes.data)
                else:
                    binding.bind_output(name, "cpu")
            self._session.run_with_iobinding(binding, self._run_options)
            results = zip(self._names, binding.get_outputs(), strict=True)
            return {name: value.numpy() for name, value in results if name not in rooms}

    def ran(self) -> dict[str, tuple[str, str]]:
        """End profiling.

        Returns:
            Operator and execution provider of each executed node, by node name.
        """
        events = json.loads(Path(self._session.end_profiling()).read_text(encoding="utf-8"))
        kernels = [event for event in events if event.get("name", "").endswith(_KERNEL)]
        return {
            event["name"].removesuffix(_KERNEL): (event["args"]["op_name"], event["args"]["provider"])
            for event in kernels
        }


def _webgpu() -> Any:
    from graphpass.runtime.devices.webgpu import webgpu_device

    device = webgpu_device() if importlib.util.find_spec("onnxruntime_ep_webgpu") is not None else None
    if device is None:
        raise UnsupportedError("GP321", "ONNX Runtime finds no WebGPU adapter", "graphpass devices names the remedy")
    return device


def _in_f32(model: OnnxModel) -> OnnxModel:
    if not any(True for _ in _rounding(model)):
        return model
    copy = model.clone()
    for attribute in _rounding(copy):
        attribute.i = _IN_F32
    copy.mark_edited()
    return copy


def _rounding(model: OnnxModel) -> Iterator[onnx.AttributeProto]:
    """Yield attributes ``accuracy_level`` that let products compute in less than f32."""
    for graph in graphs(model.proto):
        for node in graph.node:
            yield from (entry for entry in node.attribute if entry.name == _ACCURACY and entry.i > _IN_F32)
