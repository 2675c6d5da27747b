"""Masks, angles and small numbers are compared at lengths and to digits that whole models do not show."""

import dataclasses

import mutants.hidden  # noqa: F401 - registers its faults
import pytest
from mutants.faults import faults
from support.loaded import onnx_model
from support.scale import SIZES, scaled

from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse_target
from graphpass.io import load
from graphpass.verify import compare


def converted(model, target):
    return PassManager(parse_target(target).pipeline(model)).run(model).model


def mistral(window, folder, layers=4):
    size = dataclasses.replace(SIZES["tiny"], window=window, positions=32768)
    return load(scaled("mistral", size, folder / str(window), layers=layers, seed=0))


@pytest.mark.parametrize(
    ("target", "layers"),
    [("ort", 4), pytest.param("cpu", 24, marks=pytest.mark.slow), pytest.param("ort", 24, marks=pytest.mark.slow)],
)
def test_windows_beyond_the_lengths_of_whole_models(target, layers, tmp_path):
    """Compare a window of 4096, in a mask or an attribute, with others."""
    model = mistral(4096, tmp_path, layers)
    passed = compare(model, converted(model, target), steps=2)
    assert passed.passed, passed.summary()
    assert passed.reach is not None
    assert (passed.reach.thresholds, passed.reach.masks, passed.reach.angles) == ((4096,), layers, layers)
    for proof in passed.reach.proofs:
        assert (proof.equal + proof.unpadded, proof.sampled) == (layers, ())
    assert passed.reach.steps == (), "expressions decide, and no length is sampled"
    for window in (3072,) if layers > 4 else (4095,):
        found = compare(model, converted(mistral(window, tmp_path, layers), target), steps=2)
        assert found.divergence is not None
        assert found.divergence.place is not None
        assert found.divergence.place.endswith("attention /model/layers.0/self_attn/Softmax")
        assert f"the candidate's {window} positions from 1 to {window}" in found.divergence.reason


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("angles changed from 3000 on", "multiplies query or keys at positions from"),
        pytest.param("first position hidden from 20000 on", "attends", marks=pytest.mark.slow),
        ("epsilon attribute", "its epsilon is 1e-06, the candidate's 1e-05"),
        pytest.param("eps", "its epsilon is 1e-06, the candidate's 1e-05", marks=pytest.mark.slow),
    ],
)
def test_faults_hardly_visible_in_short_prompts_are_found(kind, words):
    model = onnx_model("llama")
    result = converted(model, "ort" if kind == "epsilon attribute" else "cpu")
    fault = next(fault for fault in faults(result) if fault.kind == kind)
    found = compare(model, fault.put_into(result), steps=1)
    assert found.divergence is not None
    assert words in str(found.divergence)
    assert str(found.divergence) in found.summary()


def first_hidden_from_long_prompts(model, count):
    """Hide the first position from prompts of more than ``count`` tokens at once."""
    changed = model.clone()
    rewriter = changed.rewriter()
    write, inputs = rewriter.under("fault"), changed.graph.parameters
    mask = inputs["attention_mask"]
    shown = write.op("LessEqual", write.size(inputs["input_ids"], 1), count)
    first = write.op("Multiply", write.op("Slice", mask, [0], [1], [1], axes=[1]), write.op("Convert", shown, to="i64"))
    rest = write.op("Slice", mask, [1], [2**31 - 1], [1], axes=[1])
    hidden = write.op("Concat", first, rest, axis=1)
    rewriter.redirect_uses(mask, hidden, lambda use: use.node.op not in {"ShapeOf", "Slice"})
    rewriter.finish()
    changed.mark_edited()
    return changed


@pytest.mark.slow
def test_prompts_beyond_the_lengths_of_whole_models(tmp_path):
    """A past shows no difference: whole masks are computed around each number."""
    model = mistral(1024, tmp_path)
    found = compare(model, first_hidden_from_long_prompts(model, 1600), steps=1)
    assert found.divergence is not None
    assert found.divergence.place is not None
    assert found.divergence.place.startswith("1601 new positions after 0, attention ")
