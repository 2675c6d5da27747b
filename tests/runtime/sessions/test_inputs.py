"""Test the feeding of each input."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphpass.analysis.caches.step_tokens import StepTokens
from graphpass.errors import UnsupportedError
from graphpass.ir.cache import Axes, Cache, Inventory
from graphpass.ir.types import Port
from graphpass.runtime.sessions.inputs import InputPlan, StepInputs

NONE = Inventory(stateful=False, caches=())
KV = Inventory(
    stateful=False,
    caches=(Cache("past", "kv", "key", 0, Axes(0, 1, 2, 3), (None, 2, None, 16), "f32", "past", "present"),),
)
CONV = Inventory(
    stateful=True, caches=(Cache("conv", "linear", "conv", 0, Axes(0), (None, 64, 4), "f32", "read", "write"),)
)
IDS = Port("input_ids", (None, None), "i64")

#: Two sequences with three past positions, the second one padded, and two new tokens.
STEP = StepInputs(
    input_ids=np.array([[7, 8], [9, 4]]),
    attention_mask=np.array([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]]),
    position_ids=np.array([[3, 4], [1, 2]]),
    past=3,
)


def feed(port: Port, inventory: Inventory = NONE) -> np.ndarray:
    return InputPlan([IDS, port], inventory).feeds(STEP)[port.name]


@pytest.mark.parametrize(
    ("port", "expected"),
    [
        (Port("attention_mask", (None, None), "f32"), STEP.attention_mask.astype(np.float32)),
        (Port("attention_mask", None, "boolean"), STEP.attention_mask.astype(np.bool_)),
        (Port("position_ids", ("batch", "length"), "i32"), STEP.position_ids.astype(np.int32)),
        (Port("token_type_ids", (None, None), "i64"), np.zeros((2, 2), np.int64)),
        (Port("cache_position", (None,), "i64"), np.array([3, 4])),
        (Port("beam_idx", (None,), "i32"), np.array([0, 1], np.int32)),
        (Port("src_idx", (None,), "i32"), np.zeros(0, np.int32)),
        (Port("dst_idx", (None, 2, None, 16), "i32"), np.zeros((2, 2, 0, 16), np.int32)),
        (Port("dst_idx.1", (1, "heads", None, 24), "i32"), np.zeros((1, 0, 0, 24), np.int32)),
        (Port("dst_idx", (None,), "i32"), np.zeros(0, np.int32)),
    ],
)
def test_inputs_are_fed_as_declared(port: Port, expected: np.ndarray) -> None:
    fed = feed(port)
    assert fed.dtype == expected.dtype
    np.testing.assert_array_equal(fed, expected)


def test_drafts_are_fed_states_of_the_target_and_ids() -> None:
    port = Port("hidden_states", (None, None, None), "f32")
    with pytest.raises(UnsupportedError, match="GP320"):
        InputPlan([IDS, port], NONE)
    plan = InputPlan([IDS, port], NONE, StepTokens(states=6))
    assert (plan.takes_embeddings, plan.hidden, plan.states) == (True, 7, 6)
    states = np.random.default_rng(1).standard_normal((2, 2, 6)).astype(np.float32)
    rows = np.concatenate([states, STEP.input_ids[:, :, None].astype(np.float32)], axis=-1)
    feeds = plan.feeds(replace(STEP, input_ids=np.full((2, 2), -(2**60)), embeddings=rows))
    np.testing.assert_array_equal(feeds["input_ids"], STEP.input_ids)
    np.testing.assert_array_equal(feeds["hidden_states"], states)


def test_selection_inputs_are_fed_zeros() -> None:
    for shape in ((), (1,)):
        for step_tokens in (StepTokens(passed_on=frozenset({"window"})), StepTokens(kept=frozenset({"window"}))):
            fed = InputPlan([IDS, Port("window", shape, "i64")], NONE, step_tokens).feeds(STEP)["window"]
            np.testing.assert_array_equal(fed, np.zeros(shape))
    with pytest.raises(UnsupportedError, match="window"):
        feed(Port("window", (), "i64"))


def test_counters_are_fed_the_length_of_the_past() -> None:
    for shape in ((), (1,)):
        plan = InputPlan([IDS, Port("count", shape, "i64")], KV, StepTokens(counters=frozenset({"count"})))
        np.testing.assert_array_equal(plan.feeds(STEP)["count"], np.full(shape, 3))
        assert plan.counts_past


def test_cache_inputs_are_fed_by_the_session() -> None:
    past = Port("past", (None, 2, None, 16), "f32")
    assert set(InputPlan([IDS, past], KV).feeds(STEP)) == {"input_ids"}


def test_without_growing_caches_the_mask_covers_the_new_tokens_only() -> None:
    np.testing.assert_array_equal(feed(Port("attention_mask", (None, None), "i64"), CONV), np.ones((2, 2)))


def test_a_mask_of_new_tokens_beside_a_growing_cache() -> None:
    mask = Port("attention_mask", (None, None), "i64")
    plan = InputPlan([IDS, mask], KV, StepTokens(masks_new_tokens=True))
    np.testing.assert_array_equal(plan.feeds(STEP)["attention_mask"], np.ones((2, 2)))
    assert not plan.takes_mask
    assert InputPlan([IDS, mask], KV).takes_mask


def test_convolution_windows_get_their_slots() -> None:
    plan = InputPlan([IDS, Port("cache_position", (None,), "i64")], CONV, StepTokens(one_by_one=True))
    prefill = StepInputs(STEP.input_ids, np.ones((2, 2), np.int64), STEP.position_ids, past=0)
    np.testing.assert_array_equal(plan.feeds(prefill)["cache_position"], [0, 1, 2, 3])
    np.testing.assert_array_equal(plan.feeds(STEP)["cache_position"], [3])
    assert plan.tokens_at_once(past=0, length=5, rows=1) == 5
    assert plan.tokens_at_once(past=5, length=2, rows=1) == 1


@pytest.mark.parametrize(
    ("port", "words"),
    [
        (Port("pixel_values", (None, 3, 224, 224), "f32"), "pixel_values [?, 3, 224, 224]"),
        (Port("position_ids", (None, None, None), "i64"), "position_ids [?, ?, ?]"),
        (Port("attention_mask", (None, 1, None, None), "f32"), "attention_mask [?, 1, ?, ?]"),
        (Port("inputs_embeds", None, "f32"), "inputs_embeds of any rank"),
        (Port("attention_mask", (None, None), "bf16"), "attention_mask is of type bf16"),
    ],
)
def test_unknown_inputs_are_refused(port: Port, words: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        InputPlan([IDS, port], NONE)
    assert caught.value.id == "GP320"
    assert words in caught.value.message


def test_refuses_slots_of_an_unknown_window() -> None:
    recurrent = Cache("ssm", "linear", "recurrent", 0, Axes(0), (None, 64, 8), "f32", "read", "write")
    with pytest.raises(UnsupportedError, match="cache_position"):
        InputPlan([IDS, Port("cache_position", (None,), "i64")], Inventory(True, (recurrent,)))


def test_refuses_a_model_without_tokens() -> None:
    with pytest.raises(UnsupportedError, match="token ids"):
        InputPlan([Port("attention_mask", (None, None), "i64")], NONE)


@pytest.mark.parametrize(("name", "shape"), [("input_ids", (None,)), ("inputs_embeds", (None, 64))])
def test_packed_tokens_are_refused_with_the_pass_that_unpacks_them(name: str, shape: tuple[int | None, ...]) -> None:
    with pytest.raises(UnsupportedError, match=f"GP320: input {name} .* packs the tokens") as caught:
        InputPlan([Port(name, shape, "f32")], NONE)
    assert "unpage-caches" in str(caught.value.hint)


def test_inputs_of_any_fixed_size_are_not_allocated() -> None:
    with pytest.raises(UnsupportedError, match=r"GP320: input input_ids .* more than 16,777,216 tokens"):
        InputPlan([Port("input_ids", (None, 10**9), "i64")], NONE)
