"""Choose the backend that runs a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.errors import UsageError

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from graphpass.ir.model import Model
    from graphpass.runtime.backends.request import Backend
    from graphpass.runtime.sessions.session import DecodeSession


def open_session(
    model: Model,
    *,
    device: str = "CPU",
    backend: Backend = "auto",
    exact: bool = True,
    properties: Mapping[str, object] | None = None,
    state: str | os.PathLike[str] | None = None,
) -> DecodeSession:
    """Open a session that decodes with a model.

    Special cases:

    - ONNX Runtime updates caches of fixed capacity in place, as in models of `static-cache`. Caches that only
      GroupQueryAttention reads are updated in place as well, in buffers that grow.
    - Models in bf16 run in f32, because ONNX Runtime has no MatMul in bf16 on CPUs.
    - A model of static shapes that accepts one token at a time, from `make-static`, processes prompts token by token.
      For pairs from `graphpass.artifacts.split` see `graphpass.runtime.open_pair`.
    - On an NPU, NPUW runs models of the target `npu`; with the property ``NPUW_DEVICES=CPU`` it runs them on the CPU.

    Args:
        model: The model; `graphpass.analysis.caches.inventory.analyze_caches` finds its caches.
        device: The OpenVINO device. ONNX Runtime runs on ``"CPU"``, and on ``"WEBGPU"`` with ``graphpass[webgpu]``.
        backend: ``"auto"`` selects ONNX Runtime for ONNX and OpenVINO for IR. ``"openvino"`` also runs ONNX models,
            through OpenVINO's frontend.
        exact: Whether to compute and store caches in f32, as far as the device has options for it. Otherwise the
            device's defaults apply, with results that depend on the machine (bf16 arithmetic, u8 caches, 8-bit
            activations).
        properties: OpenVINO's properties by name, such as ``KV_CACHE_PRECISION``, ``PERFORMANCE_HINT`` or
            ``CACHE_DIR``; they override those of ``exact``.
        state: A file from `DecodeSession.save`; the session continues from it.

    Returns:
        A session, without tokens unless ``state`` is set.

    Raises:
        ReadError: GP117, the state is missing or damaged.
        UnsupportedError: GP320, sessions cannot feed an input or a cache; GP321, the runtime refuses the model; GP367,
            the model is for one version of OpenVINO's GPU plugin only; GP394, the model is the prefill model of a pair.
        UsageError: GP240, the backend does not support this dialect or device, or properties; GP252, the state is from
            another model or from other settings.

    Examples:
        >>> from graphpass.runtime import open_session
        >>> from graphpass.testing import tiny_model
        >>> session = open_session(tiny_model("llama"))
        >>> session.prefill([1, 5, 9]).shape
        (1, 3, 64)
    """
    session = _opened(model, device, backend, exact, properties or {})
    if state is not None:
        session.load(state)
    return session


def _opened(
    model: Model, device: str, backend: Backend, exact: bool, properties: Mapping[str, object]
) -> DecodeSession:
    from graphpass.dialects.openvino.model import check_trim
    from graphpass.ir.phase import Phase
    from graphpass.runtime.backends.device import Device
    from graphpass.runtime.backends.stateless import StatelessStore
    from graphpass.runtime.pair.phases import open_pair
    from graphpass.runtime.sessions.cache_store import stored_caches
    from graphpass.runtime.sessions.session import DecodeSession

    where = Device(device, exact, properties)
    if backend == "onnxruntime" or (backend == "auto" and model.dialect == "onnx"):
        if model.dialect != "onnx":
            raise UsageError("GP240", "ONNX Runtime cannot run an OpenVINO model", "use the openvino backend")
        where.require_onnxruntime()
        from graphpass.dialects.onnx.model import OnnxModel
        from graphpass.dialects.onnx.precision import without_bf16
        from graphpass.runtime.backends.onnxruntime_in_place import (
            OnnxRuntimeInPlaceStore,
            capacity_in_place,
            has_open_capacity,
        )

        model = model.analysis(without_bf16)
        assert isinstance(model, OnnxModel)
        inventory = model.analysis(stored_caches)
        if Phase.find(model) is not None:
            return open_pair(model, model, exact=exact)
        capacity = capacity_in_place(model, inventory)
        # Buffers that are updated in place are in host memory.
        if device == "CPU" and (capacity is not None or has_open_capacity(model, inventory)):
            return DecodeSession(OnnxRuntimeInPlaceStore(model, inventory, capacity, exact))
        return DecodeSession(StatelessStore(model, inventory, where))
    inventory = model.analysis(stored_caches)
    if not device.startswith("GPU"):
        check_trim(model, f"device {device}")
    if model.dialect == "openvino" and Phase.find(model) is not None:
        return open_pair(model, model, device=device, exact=exact, properties=properties)
    if inventory.stateful and device.startswith("NPU"):
        from graphpass.runtime.backends.openvino_npuw import OpenVINONpuwStore

        return DecodeSession(OpenVINONpuwStore(model, inventory, where))
    if inventory.stateful:
        from graphpass.runtime.backends.openvino_stateful import OpenVINOGPUStore, OpenVINOStatefulStore

        kept = OpenVINOGPUStore if device.startswith("GPU") else OpenVINOStatefulStore
        return DecodeSession(kept(model, inventory, where))
    return DecodeSession(StatelessStore(model, inventory, where, "openvino"))
