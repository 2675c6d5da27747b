"""Options for plugins that a model holds in its rt_info."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphpass.dialects.openvino.model import OpenVINOModel
    from graphpass.ir.model import Model


ACTIVATIONS_SCALE, KV_PRECISION = "ACTIVATIONS_SCALE_FACTOR", "KV_CACHE_PRECISION"

#: Their place in the rt_info; plugins prefer those that a program sets.
_PLACE = "runtime_options"


def runtime_options(model: Model) -> dict[str, str]:
    """Return the options that ``model`` sets, sorted by name; none in ONNX."""
    if model.dialect == "onnx":
        return {}
    from graphpass.dialects.openvino.model import OpenVINOModel

    assert isinstance(model, OpenVINOModel)
    native = model.ov_model
    names = sorted(native.get_rt_info([_PLACE]).value) if native.has_rt_info([_PLACE]) else []
    return {name: native.get_rt_info([_PLACE, name]).astype(str) for name in names}


def scales_activations(model: Model) -> bool:
    """Return whether ``model``, an OpenVINO IR, asks to scale its activations."""
    return float(runtime_options(model).get(ACTIVATIONS_SCALE, 0)) > 0


def set_runtime_option(model: OpenVINOModel, name: str, value: str) -> None:
    """Set one option."""
    model.ov_model.set_rt_info(value, [_PLACE, name])
    model.mark_edited()
