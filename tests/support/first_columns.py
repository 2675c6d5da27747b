"""A hybrid whose linear layers weigh new tokens by the first columns of the mask, as optimum-intel writes lfm2_moe."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from support.loaded import openvino_model

if TYPE_CHECKING:
    from graphpass.dialects.openvino.model import OpenVINOModel


@functools.cache
def hybrid_masked_by_first_columns() -> OpenVINOModel:
    """granitemoehybrid; several tokens take the mask's first columns, and one token none."""
    model = openvino_model("granitemoehybrid")
    rewriter, mask = model.rewriter(), model.graph.parameters["attention_mask"]
    write = rewriter.under("first_columns")
    length = write.size(model.graph.parameters["input_ids"], 1, "length")
    is_one = write.op("Convert", write.op("Equal", length, 1), to="i64")
    first = write.op("Maximum", write.slice(mask, 0, length, axis=1), is_one)
    for use in model.graph.uses(mask):
        if use.node.op == "Slice":
            rewriter.replace(use.node.outputs[0], first)
    rewriter.finish()
    model.mark_edited()
    return model
