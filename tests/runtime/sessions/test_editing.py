"""Trim, rewind, reorder, select, snapshot, restore and align, against computing all of it again."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import TensorProto, helper
from support.loaded import exported

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.errors import UnsupportedError, UsageError
from graphpass.runtime import DecodeSession, open_session

if TYPE_CHECKING:
    from collections.abc import Callable

MODELS = [
    ("llama", "ov-stateful"),
    ("gemma3_text", "ov-stateful"),
    ("lfm2", "ov-stateful"),
    ("granitemoehybrid", "ov-stateful"),
    ("qwen3_next", "ov-stateful"),
    ("qwen3", "ov-stateless"),
    ("lfm2", "ov-stateless"),
    ("gpt2", "onnx"),
    ("llama", "onnx-genai"),
    ("llama", "onnx-nocache"),
    ("mamba", "onnx-raw"),
]
#: Caches that are kept in other ways: quick for every edit, the other models for one edit each.
KINDS = [("llama", "ov-stateful"), ("lfm2", "ov-stateful"), ("gpt2", "onnx"), ("mamba", "onnx-raw")]
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]


def editable(edit: int) -> pytest.MarkDecorator:
    """All models for the edit of this number, 0 to 3."""
    others = [case for case in MODELS if case not in KINDS]
    quick = {*KINDS, *others[edit::4]}
    return pytest.mark.parametrize(
        ("name", "variant"), [case if case in quick else pytest.param(*case, marks=pytest.mark.slow) for case in MODELS]
    )


def opened(name: str = "llama", variant: str = "ov-stateful") -> DecodeSession:
    return open_session(exported(f"{name}/{variant}"))


@functools.cache
def fresh(name: str, variant: str) -> DecodeSession:
    return opened(name, variant)


def test_rows_are_selected_beside_a_scalar_output() -> None:
    model = exported("llama/onnx").clone()
    assert isinstance(model, OnnxModel)
    node = helper.make_node("ReduceMax", ["attention_mask"], ["largest"], keepdims=0)
    model.proto.graph.node.append(node)
    model.proto.graph.output.append(helper.make_tensor_value_info("largest", TensorProto.INT64, []))
    model.mark_edited()
    session = open_session(model)
    session.prefill([PROMPT, PROMPT[::-1]])
    session.select([1, 1, 0])
    want = opened("llama", "onnx")
    want.prefill([PROMPT[::-1], PROMPT[::-1], PROMPT])
    np.testing.assert_allclose(session.step([[7], [8], [9]]), want.step([[7], [8], [9]]), atol=1e-4)


def check(session: DecodeSession, name: str, variant: str, tokens: list[list[int]], new: list[list[int]]) -> None:
    """The logits of ``new`` are those of a session that has seen nothing but ``tokens`` before."""
    assert (session.batch, session.length) == np.shape(tokens)
    got = session.step(new)
    want = fresh(name, variant).prefill(np.concatenate([tokens, new], axis=1))[:, -got.shape[1] :]
    np.testing.assert_allclose(got, want, atol=1e-4)
    np.testing.assert_array_equal(got.argmax(-1), want.argmax(-1))


@editable(0)
def test_trimmed_tokens_leave_no_trace(name: str, variant: str) -> None:
    session = opened(name, variant)
    session.prefill(PROMPT)
    session.step([[7, 8, 9]])
    session.trim(2)
    check(session, name, variant, [[*PROMPT, 7]], [[1, 2]])
    session.rewind(4)
    check(session, name, variant, [PROMPT[:4]], [[8]])
    session.trim(5)
    check(session, name, variant, [[]], [[5, 6]])


@pytest.mark.parametrize(
    ("name", "variant"),
    [("llama", "ov-stateful"), ("gemma3_text", "ov-stateful"), ("lfm2", "ov-stateful"), ("gpt2", "onnx")],
)
def test_a_hundred_trims_leave_no_drift(name: str, variant: str) -> None:
    session = opened(name, variant)
    session.prefill(PROMPT)
    tokens = list(PROMPT)
    for round_ in range(100):
        session.step([[11 + round_, 5, 6, 7]])
        tokens.append(11 + round_)
        session.trim(3)
    assert session.length == len(tokens)
    check(session, name, variant, [tokens], [[1]])


@editable(1)
def test_selected_rows_continue_their_sequences(name: str, variant: str) -> None:
    session = opened(name, variant)
    rows = np.array([PROMPT, PROMPT[::-1], [*PROMPT[5:], *PROMPT[:5]]])
    session.prefill(rows)
    session.select([2, 0, 2])
    session.step([7, 8, 9])
    rows = np.concatenate([rows[[2, 0, 2]], [[7], [8], [9]]], axis=1)
    session.select([1, 1, 0])
    session.select([2, 1, 0])
    session.trim(1)
    check(session, name, variant, rows[[0, 1, 1], :-1].tolist(), [[1], [2], [3]])


@editable(2)
def test_a_snapshot_is_restored_any_number_of_times(name: str, variant: str) -> None:
    session = opened(name, variant)
    session.prefill(PROMPT)
    session.step([[7, 8]])
    logits = session.logits
    kept = session.snapshot()
    assert kept.length == 12
    for more in ([[1]], [[2, 3, 4]]):
        check(session, name, variant, [[*PROMPT, 7, 8]], more)
        session.rewind(5)
        session.step([[6, 6, 6]])
        session.restore(kept)
        np.testing.assert_array_equal(session.logits, logits)
    session.trim(1)
    check(session, name, variant, [[*PROMPT, 7]], [[9]])
    session.reset()
    with pytest.raises(UsageError, match="before a reset"):
        session.restore(kept)


@editable(3)
def test_align_keeps_the_common_prefix(name: str, variant: str) -> None:
    session = opened(name, variant)
    assert session.align(PROMPT).tolist() == [PROMPT]
    session.prefill(PROMPT)
    session.step([[7, 8, 9]])
    assert session.align([*PROMPT, 7, 5]).tolist() == [[5]]
    check(session, name, variant, [[*PROMPT, 7]], [[5]])
    assert session.align(PROMPT).tolist() == [PROMPT[-1:]]
    check(session, name, variant, [PROMPT[:-1]], [PROMPT[-1:]])
    assert session.align([9, *PROMPT]).tolist() == [[9, *PROMPT]]
    assert session.length == 0


@pytest.mark.parametrize(
    ("name", "variant"),
    [("lfm2", "ov-stateless"), ("lfm2", "ov-stateful"), ("llama", "ov-stateful"), ("llama", "onnx")],
)
def test_rows_are_selected_from_empty_caches(name: str, variant: str) -> None:
    session = opened(name, variant)
    session.prefill(PROMPT)
    session.rewind(3)
    session.select([0, 0, 0])
    check(session, name, variant, [PROMPT[:3]] * 3, [[1], [2], [3]])
    session.rewind(0)
    empty = session.snapshot()
    session.select([1])
    check(session, name, variant, [[]], [[7, 8]])
    session.restore(empty)
    check(session, name, variant, [[], [], []], [[4], [5], [6]])


def test_entries_exchange_slots_and_positions() -> None:
    """Attention does not care where entries lie; a branch of a draft takes the place of another."""
    session = opened()
    session.prefill(PROMPT)
    # Both continue the prompt: the second one is masked from the first by having been trimmed when that was fed.
    session.step([[7]])
    kept = session.snapshot()
    session.trim(1)
    session.step([[8]])
    check(session, "llama", "ov-stateful", [[*PROMPT, 8]], [[1]])
    session.restore(kept)
    session.reorder([2, 1, 0], [0, 1, 2])
    got = session.step([[5]])
    np.testing.assert_allclose(got, fresh("llama", "ov-stateful").prefill([*PROMPT, 7, 5])[:, -1:], atol=1e-4)
    assert session.stats.compactions == 0


def test_a_slot_copied_to_another_counts_twice() -> None:
    session = opened()
    states = opened()
    for one in (session, states):
        one.prefill(PROMPT)
    session.reorder([4], [7])
    session.step([5])
    assert session.stats.compactions == 1
    cache = states.store.growing[0]
    copied = states.store.read(cache).copy()
    copied[:, :, 7] = copied[:, :, 4]
    np.testing.assert_array_equal(session.store.read(cache)[:, :, :10], copied)


@pytest.mark.parametrize(("name", "variant"), [("llama", "onnx"), ("gemma3_text", "onnx"), ("qwen3", "ov-stateless")])
def test_only_named_slots_move_in_memory_of_the_session(name: str, variant: str) -> None:
    session = opened(name, variant)
    session.prefill(PROMPT)
    before = {cache: session.store.read(cache).copy() for cache in session.store.growing}
    copied = session.stats.bytes_copied
    session.reorder([4, 7, 1], [7, 4, 2])
    session.step([5])
    for cache, value in before.items():
        np.testing.assert_array_equal(session.store.read(cache)[:, :, :10], value[:, :, [0, 1, 1, 3, 7, 5, 6, 4, 8, 9]])
    named = sum(value[:, :, :3].nbytes for value in before.values())
    assert session.stats.bytes_copied - copied == named
    assert session.stats.compactions == 0


def test_rows_are_added_and_removed() -> None:
    session = opened()
    session.prefill([PROMPT])
    session.select([0, 0, 0])
    check(session, "llama", "ov-stateful", [PROMPT] * 3, [[1], [2], [3]])
    session.select([2])
    check(session, "llama", "ov-stateful", [[*PROMPT, 3]], [[4]])


def test_padding_survives_edits() -> None:
    session = opened()
    rows = np.array([PROMPT, [0, 0, *PROMPT[:8]]])
    mask = np.ones_like(rows)
    mask[1, :2] = 0
    session.prefill(rows, mask)
    session.step([[7, 8], [7, 8]])
    session.trim(1)
    got = session.step([5, 5])
    alone = fresh("llama", "ov-stateful").prefill([*PROMPT[:8], 7, 5])[:, -1:]
    np.testing.assert_allclose(got[1:], alone, atol=1e-4)


def test_rejected_slots_are_compacted_rarely() -> None:
    session = opened()
    session.prefill(PROMPT)
    tokens = list(PROMPT)
    for round_ in range(40):
        session.step([[11 + round_, *[5] * 20]])
        tokens.append(11 + round_)
        session.trim(20)
    assert 0 < session.stats.compactions < 12
    check(session, "llama", "ov-stateful", [tokens], [[1]])


def test_checkpoints_are_bounded_and_counted() -> None:
    session = opened("lfm2")
    session.prefill(PROMPT)
    for round_ in range(100):
        session.step([[round_ + 1, 2]])
    stats = session.stats
    assert 0 < stats.snapshots <= 64
    assert stats.snapshot_bytes == stats.snapshots * 2 * 64 * 3 * 4
    session.trim(5)
    session.step([[1]])
    assert session.stats.replayed_tokens == 1


def test_single_steps_keep_few_states() -> None:
    session = opened("lfm2")
    session.prefill(PROMPT)
    for token in range(70):
        session.step([token + 1])
    assert session.stats.snapshots == 2


@pytest.mark.parametrize(
    ("edit", "error_id"),
    [
        (lambda session: session.reorder([1, 2], [3]), "GP244"),
        (lambda session: session.reorder([-1], [3]), "GP244"),
        (lambda session: session.reorder([1], [10]), "GP244"),
        (lambda session: session.reorder([1, 2], [3, 3]), "GP244"),
        (lambda session: session.reorder([1.5], [3]), "GP244"),
        (lambda session: session.trim(11), "GP245"),
        (lambda session: session.trim(-1), "GP245"),
        (lambda session: session.rewind(11), "GP245"),
        (lambda session: session.rewind(-1), "GP245"),
        (lambda session: session.select([1]), "GP246"),
        (lambda session: session.select([-1]), "GP246"),
        (lambda session: session.select([]), "GP246"),
        (lambda session: session.step([1, 2]), "GP242"),
        (lambda session: session.step([[1, 2]], parents=[0, 1]), "GP247"),
        (lambda session: session.restore(taken()), "GP248"),
        (lambda session: session.align([]), "GP241"),
        (lambda _: opened().snapshot(), "GP243"),
    ],
)
def test_wrong_edits_are_errors_and_change_nothing(edit: Callable[[DecodeSession], object], error_id: str) -> None:
    session = opened()
    session.prefill(PROMPT)
    with pytest.raises(UsageError) as caught:
        edit(session)
    assert caught.value.id == error_id
    check(session, "llama", "ov-stateful", [PROMPT], [[1]])


def taken() -> object:
    other = opened()
    other.prefill(PROMPT)
    return other.snapshot()


@pytest.mark.parametrize(
    ("edit", "error_id", "words"),
    [
        (lambda session: session.reorder([1], [2]), "GP370", "has one state, not one entry per token"),
        (lambda session: session.step([[1, 2]], parents=[-1, -1]), "GP371", "one state, not one per branch"),
    ],
)
def test_unsupported_edits_of_linear_caches_are_refused(
    edit: Callable[[DecodeSession], object], error_id: str, words: str
) -> None:
    session = opened("lfm2")
    session.prefill(PROMPT)
    with pytest.raises(UnsupportedError, match=words) as caught:
        edit(session)
    assert caught.value.id == error_id
    check(session, "lfm2", "ov-stateful", [PROMPT], [[1]])


def test_a_tree_needs_a_mask_input() -> None:
    session = opened()
    session.prefill(PROMPT)
    with pytest.raises(UnsupportedError, match="tree_mask") as caught:
        session.step([[1, 2]], parents=[-1, -1])
    assert caught.value.id == "GP371"
    session.step([[1, 2]], parents=[-1, 0])
    check(session, "llama", "ov-stateful", [[*PROMPT, 1, 2]], [[3]])
