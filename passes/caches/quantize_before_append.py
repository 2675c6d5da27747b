"""The pass `quantize-before-append`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.caches.rounded import find_rounded
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.conditions import HAS_CACHES
from graphpass.engine.passes import Done, Pass


@dataclass(frozen=True)
class QuantizeBeforeAppend(Pass[OpenVINOModel]):
    """Round new keys and values before they are appended, not the whole cache.

    NNCF and ONNX Runtime quantize operands of attention, and no plugin fuses a FakeQuantize between cache and
    attention. Rounding twice is rounding once, so the cache stores rounded numbers; a past from the source model has to
    be rounded. A quantizer is unchanged if its ranges differ by channel or between input and output, or if the cache
    has other users.

    Before:
        past -> Concat(., new) -> FakeQuantize -> attention
    After:
        past -> Concat(., FakeQuantize(new)) -> attention
    """

    name = "quantize-before-append"
    dialect = "openvino"
    requires = (HAS_CACHES,)

    def run(self, model: OpenVINOModel) -> Done:
        rewriter, caches = model.rewriter(), model.analysis(find_rounded)
        for cache in caches:
            append, quantizer = cache.append, cache.quantizers[0]
            new = {0: rewriter.native(append.source(cache.port))}
            rewriter.redirect(append, cache.port, rewriter.clone(quantizer, new, f"{append.name}/rounded"))
            for node in cache.quantizers:
                rewriter.redirect_uses(node.outputs[0], rewriter.native(node.source()))
        rewriter.finish()
        return Done({"caches of rounded numbers": len(caches)} if caches else {})
