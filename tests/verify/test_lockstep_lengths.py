"""Compare models around the lengths at which either changes what it does."""

import dataclasses

from support.loaded import exported
from support.models import export
from support.scale import SIZES, scaled

from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse_target
from graphpass.io import load
from graphpass.verify import compare, compare_models, compare_within
from graphpass.verify.request import ProofRequest


def converted(path):
    model = load(path)
    return model, PassManager(parse_target("cpu").pipeline(model)).run(model).model


def with_window(size, folder):
    """A Mistral with a window of ``size`` positions, and random weights that do not depend on it."""
    tiny = dataclasses.replace(SIZES["tiny"], window=size)
    return scaled("mistral", tiny, folder / str(size), layers=4, seed=0)


def test_prompts_around_lengths_run_unless_structures_are_equal(tmp_path):
    model, result = converted(with_window(64, tmp_path))
    found = compare_within(model, result, steps=2)
    assert found.structure is not None
    assert found.structure.is_complete
    assert not any(run.description.startswith("around") for run in found.sequences)
    assert found.reach is not None
    assert found.reach.thresholds == (64,)
    narrower = compare_within(model, converted(with_window(48, tmp_path))[1], steps=2)
    assert narrower.sequences[-1].description == "around 48, prompt of 47 tokens"


def test_software_adapters_run_short_prompts(monkeypatch):
    monkeypatch.setattr(compare_models, "is_software", lambda: True)
    limit = compare_models._limit(ProofRequest(device="WEBGPU"), [exported("llama/onnx")])
    assert (limit.tokens, limit.reason) == (31, "SwiftShader computes over 31 tokens incorrectly")


def test_a_narrower_window_is_found(tmp_path):
    """Compare a window of 64 with one of 48, which no prompt of a few tokens reaches."""
    model, result = converted(with_window(64, tmp_path))
    passed = compare(model, result, steps=2)
    assert passed.passed, passed.summary()
    assert [run.description for run in passed.sequences[5:]] == [
        "around 64, prompt of 63 tokens",
        "around 64, prompt of 64 tokens",
        "around 64, prompt of 128 tokens",
    ]
    found = compare(model, converted(with_window(48, tmp_path))[1], steps=2)
    assert found.divergence is not None
    assert found.sequences[-1].description == "around 48, prompt of 47 tokens"
    assert found.divergence.step == 2  # the 49th position is the first that the window hides


def test_tables_are_read_up_to_their_end():
    model, result = converted(export("gpt2", "onnx"))
    found = compare(model, result, steps=2)
    assert found.passed, found.summary()
    assert [(run.description, run.steps) for run in found.sequences[5:]] == [
        ("around 256, prompt of 255 tokens", 1),
        ("around 256, prompt of 256 tokens", 0),
    ]


def test_lengths_exceeding_the_time_are_reported(monkeypatch):
    monkeypatch.setattr(compare_models, "_MOST_TOKENS", 200)
    model = load(export("gpt2", "onnx"))
    found = compare(model, model, steps=2)
    assert found.skipped == tuple(
        f"prompts of {count} tokens around 256: too much work for whole models" for count in (255, 256)
    )


def test_lengths_without_room_in_the_reference_are_reported():
    model = load(export("mistral_sw8", "onnx"))
    fixed = load_static(model)
    found = compare(model, fixed, steps=2)
    assert found.passed, found.summary()
    no_room = [words.partition(": the reference has no room for it: ")[0] for words in found.skipped[:4]]
    assert no_room == [
        f"around {length}, prompt of {count} tokens" for length, count in [(8, 16), (14, 13), (14, 14), (14, 28)]
    ]
    assert all("beyond the lengths of whole models" in words for words in found.skipped[4:])


def load_static(model):
    from graphpass.engine.pipeline import parse

    return PassManager(parse("static-cache{capacity=14}")).run(model).model
