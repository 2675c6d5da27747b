"""The pass `set-runtime-options`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.runtime_options import (
    ACTIVATIONS_SCALE,
    KV_PRECISION,
    runtime_options,
    set_runtime_option,
)
from graphpass.engine.conditions import STATEFUL
from graphpass.engine.passes import Done, Pass, Skipped

#: Element types of compressed weights.
_COMPRESSED = frozenset({"u8", "i8", "u4", "i4", "u2", "nf4", "f8e4m3", "f8e5m2", "f4e2m1"})

#: Constants of more bytes are weights.
_SMALL = 1024


@dataclass(frozen=True)
class SetRuntimeOptions(Pass[OpenVINOModel]):
    """Write the runtime options for plugins that optimum-intel writes to its exports.

    Plugins apply these options unless a program sets others. By default the CPU plugin stores caches in u8, with an
    error of logits ten times that of f16 for a small model. Optimum keeps this default if weights are compressed. GPUs
    that compute in f16 divide activations by the scale factor. A model that already has runtime options is unchanged.

    Before:
        no rt_info runtime_options
    After:
        rt_info runtime_options: KV_CACHE_PRECISION f16 (weights not compressed), ACTIVATIONS_SCALE_FACTOR 8.0

    Attributes:
        kv_cache_precision: Element type of caches, if weights are not compressed.
        activations_scale_factor: Divisor of activations.

    Raises:
        PreconditionError: GP302, the model is not stateful, so that plugins do not store its caches.
    """

    name = "set-runtime-options"
    dialect = "openvino"
    requires = (STATEFUL,)

    kv_cache_precision: str = "f16"
    activations_scale_factor: float = 8.0

    def run(self, model: OpenVINOModel) -> Done | Skipped:
        if runtime_options(model):
            return Skipped("the model already has runtime options")
        set_runtime_option(model, ACTIVATIONS_SCALE, str(self.activations_scale_factor))
        if not _is_compressed(model):
            set_runtime_option(model, KV_PRECISION, self.kv_cache_precision)
        return Done({"options": len(runtime_options(model))})


def _is_compressed(model: OpenVINOModel) -> bool:
    return any(
        op.get_type_name() == "Constant"
        and op.get_element_type().to_string() in _COMPRESSED
        and op.get_byte_size() > _SMALL
        for op in model.ov_model.get_ops()
    )
