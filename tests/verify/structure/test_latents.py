"""Caches of keys and values where the reference caches latents."""

from __future__ import annotations

from mutants import attributes, moves, triggers  # noqa: F401 - registers their faults
from support.loaded import converted, exported
from verify.structure.comparing import unequal


def test_caches_filled_with_zeros_are_equal_if_they_stay_zero():
    reference = exported("deepseek_v3/onnx")
    result = converted(reference, "ort-genai").model
    left = [found.name for found in unequal(reference, result, unpadded=True)]
    assert left == ["logits"]
    (pad, *_) = [node for node in result.graph.of_op("Pad") if "value_padded" in node.name]
    mutant = result.clone()
    rewriter = mutant.rewriter()
    write = rewriter.under("fault")
    rewriter.replace(pad.outputs[0], write.op("Add", pad.outputs[0], write.number(0.5, pad.outputs[0].element_type)))
    rewriter.finish()
    assert len(unequal(reference, mutant, unpadded=True)) > 1
