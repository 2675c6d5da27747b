"""expand-latents: keys and values in place of latents, the same numbers, and a proof that covers all steps."""

from __future__ import annotations

import numpy
import onnxruntime
import pytest
from support.layout_forms import HEADS, LATENT, SIZE, latent_head
from support.loaded import run_once
from support.pipelines import run_passes

import graphpass
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.ir.model import Model
from graphpass.passes.caches.expand_latents import ExpandLatents
from graphpass.verify.structure.proof import compare_structures


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
    after, result = run_passes(latent_head("input_ids"), ExpandLatents())
    sizes = {cache.role: cache.shape for cache in graphpass.analyze_caches(after).caches}
    assert sizes == {"key": ("B", HEADS, "P", SIZE + 2), "value": ("B", HEADS, "P", SIZE)}
    before, bytes_after = 4 * (LATENT + 2), 4 * HEADS * (2 * SIZE + 2)
    assert result.statistics == {"layers": 1, "bytes a position before": before, "after": bytes_after}


def test_steps_compute_the_same():
    steps = [[1, 2, 0], [3], [2, 2]]
    after = run_passes(latent_head("input_ids"), ExpandLatents())[0]
    for expected, found in zip(logits(latent_head("input_ids"), steps), logits(after, steps), strict=True):
        numpy.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_result_is_proven_for_all_steps():
    model = latent_head("input_ids")
    found = compare_structures(model, run_passes(model, ExpandLatents())[0])
    assert found is not None
    assert found.equal == found.operators > 0


def test_the_result_is_proven_in_openvino():
    model = latent_head("input_ids")
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
    model = latent_head("input_ids")
    found = compare_structures(model, doubled(run_passes(model, ExpandLatents())[0], kind))
    assert found is not None
    assert found.unpadded < found.operators


def test_a_second_run_changes_nothing():
    after = run_passes(latent_head("input_ids"), ExpandLatents())[0]
    again, result = run_passes(after, ExpandLatents())
    assert not result.changed
    assert again.digest() == after.digest()
