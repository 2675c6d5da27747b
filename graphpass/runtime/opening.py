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
    """Open a model to decode with.

    ONNX Runtime runs an ONNX model with caches of fixed capacity, as `static-cache` makes them, in place, and one whose
    pasts GroupQueryAttention alone reads, too, in buffers that grow. A model of
    static shapes that takes one token at a time, as `make-static` makes it, takes prompts token by token, too; for the
    pairs of `graphpass.artifacts.split` see `graphpass.runtime.open_pair`. A model in bf16, in which ONNX Runtime
    computes no products on a CPU, runs in f32.

    On an NPU a model that the target `npu` made runs by NPUW; with the property ``NPUW_DEVICES=CPU`` it does so on a
    CPU.

    Args:
        model: The model; `graphpass.analysis.caches.inventory.analyze_caches` finds its caches.
        device: The OpenVINO device. ONNX Runtime runs on ``"CPU"``, and on ``"WEBGPU"`` with ``graphpass[webgpu]``.
        backend: ``"auto"`` takes ONNX Runtime for ONNX and OpenVINO for OpenVINO. ``"openvino"`` also runs ONNX models,
            through OpenVINO's frontend.
        exact: Compute and keep caches in f32, as far as the device has options for that. Otherwise its defaults
            hold, whose results depend on the machine (bf16 arithmetic, u8 caches, activations in 8 bits).
        properties: OpenVINO's properties by name, such as ``KV_CACHE_PRECISION``, ``PERFORMANCE_HINT`` or
            ``CACHE_DIR``; they hold before those of ``exact``.
        state: A file that `DecodeSession.save` wrote, to go on from.

    Returns:
        A session, without tokens unless it goes on from a state.

    Raises:
        ReadError: GP117, the state is missing or damaged.
        UnsupportedError: GP320 an input or a cache that no session can feed; GP321 the runtime refuses the model; GP367
            the model is made for one version of OpenVINO's GPU plugin alone; GP394 it is the prefill model of a pair.
        UsageError: GP240 the backend cannot run this dialect or device, or has no properties; GP252 the state is of
            another model or other settings.
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
        # Buffers in place are this process's memory.
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
