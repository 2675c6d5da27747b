"""Options for plugins in a model's rt_info."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphpass.dialects.openvino.model import OpenVINOModel
    from graphpass.ir.model import Model


ACTIVATIONS_SCALE, KV_PRECISION = "ACTIVATIONS_SCALE_FACTOR", "KV_CACHE_PRECISION"

#: Key of the options in the rt_info; options that a program sets take precedence.
_PLACE = "runtime_options"


def runtime_options(model: Model) -> dict[str, str]:
    """Return the options in ``model``, sorted by name; empty for ONNX."""
    if model.dialect == "onnx":
        return {}
    from graphpass.dialects.openvino.model import OpenVINOModel

    assert isinstance(model, OpenVINOModel)
    native = model.ov_model
    names = sorted(native.get_rt_info([_PLACE]).value) if native.has_rt_info([_PLACE]) else []
    return {name: native.get_rt_info([_PLACE, name]).astype(str) for name in names}


def scales_activations(model: Model) -> bool:
    """Return whether ``model``, an OpenVINO IR, requests scaled activations."""
    return float(runtime_options(model).get(ACTIVATIONS_SCALE, 0)) > 0


def set_runtime_option(model: OpenVINOModel, name: str, value: str) -> None:
    """Set one option of a model.

    Args:
        model: The model, whose rt_info is edited.
        name: Key of the option, ``KV_CACHE_PRECISION``.
        value: Its value as text.
    """
    model.ov_model.set_rt_info(value, [_PLACE, name])
    model.mark_edited()
