"""With which options plugins are to run a model, as the model itself says in its rt_info."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphpass.dialects.openvino.model import OpenVINOModel
    from graphpass.ir.model import Model

__all__ = ["ACTIVATIONS_SCALE", "KV_PRECISION", "runtime_options", "set_runtime_option"]

ACTIVATIONS_SCALE, KV_PRECISION = "ACTIVATIONS_SCALE_FACTOR", "KV_CACHE_PRECISION"

#: Where plugins look for them; what a program sets goes before.
_PLACE = "runtime_options"


def runtime_options(model: Model) -> dict[str, str]:
    """The options that ``model`` sets, sorted by name; none in ONNX."""
    if model.dialect == "onnx":
        return {}
    from graphpass.dialects.openvino.model import OpenVINOModel

    assert isinstance(model, OpenVINOModel)
    native = model.ov_model
    names = sorted(native.get_rt_info([_PLACE]).value) if native.has_rt_info([_PLACE]) else []
    return {name: native.get_rt_info([_PLACE, name]).astype(str) for name in names}


def set_runtime_option(model: OpenVINOModel, name: str, value: str) -> None:
    """Set one of them."""
    model.ov_model.set_rt_info(value, [_PLACE, name])
    model.mark_edited()
