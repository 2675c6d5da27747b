"""The pass `scatter-visual-features`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.caches.visual_features import added_features
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.passes import Done, Pass


@dataclass(frozen=True)
class ScatterVisualFeatures(Pass[OpenVINOModel]):
    """Add features of images to hidden states in the form that NPUW recognizes.

    NPUW feeds ``deepstack_visual_embeds`` with a row for each position, 0 at those without an image, and replaces the
    addition of features by a sum of whole tensors (``replace_deepstack_scatter_with_add.cpp``, 2026.4.1). It recognizes
    only ScatterNDUpdate; optimum-intel 2.2 gathers a row for each token instead.

    Shapes:
        deepstack_visual_embeds ``[levels, images' tokens, hidden]``, visual_pos_masks ``[batch, length]``, hidden
        states ``[batch, length, hidden]``

    Before:
        Add(hidden, Multiply(Gather(features[level], Maximum(CumSum(mask) - 1, 0)), mask))
    After:
        ScatterNDUpdate(hidden, places, Add(GatherND(hidden, places), features[level])), places = NonZero(mask)^T
    """

    name = "scatter-visual-features"
    dialect = "openvino"

    def run(self, model: OpenVINOModel) -> Done:
        found = list(added_features(model.graph))
        if not found:
            return Done()
        rewriter = model.rewriter()
        write = rewriter.under("visual_features")
        places = write.op("Transpose", write.op("NonZero", found[0].mask, output_type="i64"), order=[1, 0])
        for added in found:
            write = rewriter.under(added.node.name)
            rows = write.op("GatherND", added.hidden, places, batch_dims=0, opset=8, label="rows")
            changed = write.op("Add", rows, added.features, label="changed")
            rewriter.replace(
                added.node.outputs[0], write.op("ScatterNDUpdate", added.hidden, places, changed, label="scattered")
            )
        rewriter.finish()
        return Done({"features scattered": len(found)})
