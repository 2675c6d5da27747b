"""Caches of keys and values where the reference caches latents."""

from __future__ import annotations

from mutants import attributes, moves, triggers  # noqa: F401 - registers their faults
from support.loaded import converted, exported
from verify.structure.comparing import unequal

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.packed import packed_caches
from graphpass.ir.model import Model
from graphpass.testing import tiny_model


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


def stacked(*, factor: float = 1.0) -> Model:
    """Return a decoder with keys and values in one tensor [2, batch, heads, positions, head_dim]."""
    model = tiny_model("llama", layers=1)
    graph, rewriter = model.graph, model.rewriter()
    write = rewriter.under("stack")
    shape = graph.parameters["past.0.key"].shape
    past = rewriter.input("past.0", "f32", [2, *shape])
    parts = write.split(past, 0, [1, 1])
    whole = []
    for part, role in zip(parts, ("key", "value"), strict=True):
        rewriter.redirect_uses(graph.parameters[f"past.0.{role}"], write.op("Squeeze", part, axes=[0]))
        present = graph.writes[f"present.0.{role}"]
        stored = (
            present.source() if factor == 1 else write.op("Multiply", present.source(), write.number(factor, "f32"))
        )
        whole.append(write.op("Unsqueeze", stored, axes=[0]))
        rewriter.drop([present])
    rewriter.output("present.0", write.op("Concat", *whole, axis=0), "f32", [2, shape[0], shape[1], "total", shape[3]])
    for role in ("key", "value"):
        rewriter.drop_input(f"past.0.{role}")
    assert rewriter.finish()
    return model


def test_a_cache_of_both_is_read_as_keys_and_values():
    model = stacked()
    assert [cache.axes.batch for cache in packed_caches(analyze_caches(model))] == [1]
    assert unequal(model, tiny_model("llama", layers=1), unpadded=False) == []


def test_a_cache_that_stores_other_numbers_is_not_read_as_keys_and_values():
    """Attention of the next step reads other keys and values than those of the candidate."""
    assert unequal(stacked(factor=0.5), tiny_model("llama", layers=1), unpadded=False)


def test_a_candidate_that_stores_other_keys_is_unequal():
    candidate = tiny_model("llama", layers=1)
    rewriter, key = candidate.rewriter(), candidate.graph.writes["present.0.key"]
    write = rewriter.under("fault")
    rewriter.redirect(key, 0, write.op("Multiply", key.source(), write.number(2.0, "f32")))
    rewriter.finish()
    assert unequal(stacked(), candidate, unpadded=False)
