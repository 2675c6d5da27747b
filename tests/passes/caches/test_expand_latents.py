"""expand-latents: keys and values in place of latents, the same numbers, and a proof that covers all steps."""

from __future__ import annotations

import numpy
import onnxruntime
import pytest
from support.layout_forms import HEADS, LATENT, SIZE, latent, latent_head
from support.loaded import run_once
from support.pipelines import run_passes

import graphpass
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.passes import Skipped
from graphpass.ir.model import Model
from graphpass.passes.caches.expand_latents import ExpandLatents
from graphpass.verify.structure.proof import compare_structures


def original() -> OnnxModel:
    return latent_head("input_ids")


def logits(model: OnnxModel, steps: list[list[int]]) -> list[numpy.ndarray]:
    """Run steps from empty caches in ONNX Runtime."""
    session = onnxruntime.InferenceSession(model.proto.SerializeToString(), providers=["CPUExecutionProvider"])
    caches = graphpass.analyze_caches(model).caches
    pasts = {
        cache.read: numpy.zeros([1, *(0 if size == "P" else size for size in cache.shape[1:])], numpy.float32)
        for cache in caches
    }
    names, results = [port.name for port in session.get_outputs()], []
    for tokens in steps:
        outputs = dict(zip(names, session.run(names, {"input_ids": numpy.int64([tokens]), **pasts}), strict=True))
        pasts = {cache.read: outputs[cache.write] for cache in caches}
        results.append(next(value for name, value in outputs.items() if not name.startswith("present")))
    return results


def test_keys_and_values_are_kept():
    after, result = run_passes(original(), ExpandLatents())
    sizes = {cache.role: cache.shape for cache in graphpass.analyze_caches(after).caches}
    assert sizes == {"key": ("B", HEADS, "P", SIZE + 2), "value": ("B", HEADS, "P", SIZE)}
    before, bytes_after = 4 * (LATENT + 2), 4 * HEADS * (2 * SIZE + 2)
    assert result.statistics == {"layers": 1, "bytes a position before": before, "after": bytes_after}


def test_steps_compute_the_same():
    steps = [[1, 2, 0], [3], [2, 2]]
    after = run_passes(original(), ExpandLatents())[0]
    for expected, found in zip(logits(original(), steps), logits(after, steps), strict=True):
        numpy.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_result_is_proven_for_all_steps():
    model = original()
    found = compare_structures(model, run_passes(model, ExpandLatents())[0])
    assert found is not None
    assert found.equal == found.operators > 0


def test_the_result_is_proven_in_openvino():
    model = original()
    found = compare_structures(model, run_once(model, "to-openvino,expand-latents,make-stateful").model)
    assert found is not None
    assert found.equal == found.operators > 0


def doubled(model: Model, name: str) -> Model:
    """Return a copy in which the first operator of a kind reads twice its operand."""
    copy = model.clone()
    rewriter = copy.rewriter()
    node = next(node for node in copy.graph.of_op(name) if node.source().element_type == "f32")
    rewriter.redirect(node, 0, rewriter.under("doubled").op("Add", node.source(), node.source()))
    rewriter.finish()
    return copy


@pytest.mark.parametrize("kind", ["MatMul", "Reshape", "Concat"])
def test_another_result_is_not_proven(kind):
    model = original()
    found = compare_structures(model, doubled(run_passes(model, ExpandLatents())[0], kind))
    assert found is not None
    assert found.unpadded < found.operators


def test_a_second_run_changes_nothing():
    after = run_passes(original(), ExpandLatents())[0]
    again, result = run_passes(after, ExpandLatents())
    assert not result.changed
    assert again.digest() == after.digest()


def test_latents_of_another_layout_stay():
    model = latent()
    after, result = run_passes(model, ExpandLatents())
    assert isinstance(result, Skipped)
    assert "is not an input to which a Concat appends" in result.reason
    assert after.digest() == model.digest()


def scaled_by_a_size(kind: str, axis: int) -> OnnxModel:
    """Return a model whose keys are scaled by a size of the first result of an operator."""
    model = original()
    rewriter, graph = model.rewriter(), model.graph
    write = rewriter.under("counted")
    split, counted = next(graph.of_op("VariadicSplit")), next(graph.of_op(kind)).outputs[0]
    size = write.convert(write.size(counted, axis), "f32")
    rewriter.redirect(split, 0, write.op("Multiply", split.source(), size))
    rewriter.finish()
    return model


@pytest.mark.parametrize(("kind", "axis"), [("Squeeze", 1), ("Gather", 1)], ids=["all positions", "new ones"])
def test_keys_depending_on_lengths_stay(kind, axis):
    model = scaled_by_a_size(kind, axis)
    after, result = run_passes(model, ExpandLatents())
    assert isinstance(result, Skipped)
    assert "Convert computes with a length of the step" in result.reason
    assert after.digest() == model.digest()
