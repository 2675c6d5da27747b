"""Caches that are written at counted slots become growing caches that compute the same."""

import pytest
from support.pipelines import run_passes
from support.slot_caches import CAPACITY, slot_decoder

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.masks import find_masks
from graphpass.engine.passes import Skipped
from graphpass.passes.caches.counted_slots import find_counted_slots
from graphpass.passes.caches.grow_caches import GrowCaches
from graphpass.verify import compare


@pytest.mark.parametrize("dialect", ["onnx", "openvino"])
def test_caches_grow(dialect):
    model = slot_decoder(dialect)
    assert {cache.capacity for cache in analyze_caches(model).caches} == {CAPACITY}
    after, result = run_passes(model, GrowCaches())
    assert result.statistics == {"caches grown": 2}
    assert {port.name for port in after.inputs} == {"input_ids", "attention_mask", "past_k", "past_v"}
    assert {port.name for port in after.outputs} == {"logits", "present.0.key", "present.0.value"}
    assert {cache.capacity for cache in analyze_caches(after).caches} == {None}
    (mask,) = after.analysis(find_masks)
    assert (mask.is_causal, mask.is_padded, mask.window, mask.residue) == (True, True, None, ())
    assert compare(model, after, steps=3).passed


@pytest.mark.parametrize("dialect", ["onnx", "openvino"])
@pytest.mark.parametrize("start", ["%slots = Subtract(%count, %range)", "%slots = Add(%range, 1)"])
def test_slots_that_are_not_counted_stay(dialect, start):
    model = slot_decoder(dialect, start=start)
    assert find_counted_slots(model) is None
    assert isinstance(run_passes(model, GrowCaches())[1], Skipped)
