"""Which sequences two models are compared on, and what is said of those that were not."""

import pytest

from graphpass.errors import UsageError
from graphpass.testing import run, tiny_model
from graphpass.verify.compare_models import WIDENED, compare

#: The sequences of every comparison, and those with steps.
PREFILLS = [
    "prompt of 5 tokens",
    "prompt of 11 tokens",
    "batch of 3, prompts of 11, 2 and 9 tokens, padded on the left",
]
STEPS = ["rows, batch of 5, prompts of 4 tokens", "batch of 3, prompts of 11, 1 and 5 tokens, padded on the right"]
EDITS = ["edits, prompt of 5 tokens", "edits, batch of 2, prompts of 5 tokens"]


@pytest.fixture(scope="module")
def llama():
    return tiny_model("llama", layers=1)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"steps": 0}, PREFILLS),
        ({"steps": 1}, PREFILLS + STEPS),
        ({"steps": 1, "edits": True}, PREFILLS + STEPS + EDITS),
    ],
)
def test_sequences_of_a_comparison(llama, settings, expected):
    found = compare(llama, run(llama, "fuse-group-query-attention{context=64}"), **settings)
    assert [sequence.description for sequence in found.sequences] == expected
    assert found.passed
    assert (found.skipped, found.warnings) == ((), ())
    assert 0 < found.max_abs_difference < 1e-5


def test_given_prompts_come_first(llama):
    found = compare(llama, llama, steps=0, prompt_ids=(1, 2, 3))
    assert found.sequences[0].prompt_ids == ((1, 2, 3),)


def test_the_first_difference_ends_the_comparison(llama):
    found = compare(llama, tiny_model("qwen2", layers=1), steps=1)
    assert not found.passed
    assert len(found.sequences) == 1
    assert str(found.divergence).startswith("sequence 0, the prefill, output logits[0, 0, 0]: reference ")


@pytest.fixture(scope="module")
def half(llama):
    return run(llama, "change-precision{to=f16}")


def test_references_in_16_bits_run_in_f32(llama, half):
    assert compare(half, llama, steps=0).skipped == (WIDENED,)
    # Two models in f16 round alike.
    assert compare(half, half, steps=0).skipped == ()
    assert compare(llama, half, steps=0).skipped == ()


def test_tolerances_decide(llama, half):
    assert compare(llama, half, steps=0).passed
    assert not compare(llama, half, steps=0, atol=1e-6, rtol=0).passed


def test_sequences_beyond_a_capacity_are_refused_with_a_remedy(llama):
    static = run(llama, "static-cache{capacity=8}")
    assert compare(llama, static, steps=0, prompt_ids=(1,)).sequences
    with pytest.raises(
        UsageError, match="8 of 8 positions are taken, which a comparison over 4 steps requires"
    ) as error:
        compare(llama, static, steps=4)
    assert error.value.id == "GP267"
    assert error.value.hint.startswith("compare fewer steps or a shorter prompt")
