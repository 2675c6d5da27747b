"""The pass `dequantize-caches`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.caches.quantized import find_cache_scales
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.rounded_caches import dequantize_caches
from graphpass.engine.passes import Done, Pass


@dataclass(frozen=True)
class DequantizeCaches(Pass[OnnxModel]):
    """Store quantized caches of GroupQueryAttention in the type of its query.

    The inverse of `quantize-caches`, also for models of onnxruntime-genai's builder (``kv_cache_quant_scheme``).
    OpenVINO has no operator with a quantized cache; its plugins quantize caches themselves, by the property
    ``KV_CACHE_PRECISION``. The result does not round keys and values. `verify` compares it with the source model
    without rounding, and reports so.

    Shapes:
        past and present ``[batch, kv_heads, sequence, head_dim]``

    Before:
        GroupQueryAttention(query, key, value, past key (i8), past value (i8), .., key scale, value scale)
    After:
        GroupQueryAttention(query, key, value, past key (f32), past value (f32), ..)
    """

    name = "dequantize-caches"
    dialect = "onnx"

    def run(self, model: OnnxModel) -> Done:
        count = len(model.analysis(find_cache_scales))
        if count:
            dequantize_caches(model)
        return Done({"caches dequantized": count})
