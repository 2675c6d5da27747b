"""Sessions on models whose inputs move slots or hide branches of a draft, as passes add them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.models import export

from graphpass.analysis.lengths.past_order import past_order
from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse
from graphpass.io import load
from graphpass.runtime import DecodeSession, open_session

if TYPE_CHECKING:
    from graphpass.ir.model import Model

PROMPT = list(range(3, 23))

#: 0 - 1
#:   \ 2 - 4     3 beside 0
PARENTS = [-1, 0, 0, -1, 2]
DRAFT = [30, 31, 32, 33, 34]
PATHS = [[30], [30, 31], [30, 32], [33], [30, 32, 34]]


@functools.cache
def edited(name: str, variant: str, pipeline: str) -> Model:
    return PassManager(parse(pipeline)).run(load(export(name, variant))).model


@functools.cache
def plain(name: str, variant: str) -> DecodeSession:
    return open_session(load(export(name, variant)))


MOVES = pytest.mark.parametrize(
    ("name", "variant", "form"),
    [
        ("llama", "ov-stateful", "gpu"),
        ("deepseek_v3", "ov-stateful", "gpu"),
        ("gemma3_text", "ov-stateful", "compact"),
        ("lfm2", "ov-stateful", "gpu"),
        ("qwen3", "onnx", "onnx"),
    ],
)


@MOVES
def test_the_model_itself_drops_and_keeps_slots(name: str, variant: str, form: str) -> None:
    session = open_session(edited(name, variant, f"insert-reorder{{form={form}}}"))
    session.prefill([PROMPT, PROMPT[::-1]])
    session.step([[1, 2, 3, 4]] * 2)
    session.trim(3)
    got = session.step([[6, 7]] * 2)
    rows = np.array([[*PROMPT, 1, 6, 7], [*PROMPT[::-1], 1, 6, 7]])
    np.testing.assert_allclose(got, plain(name, variant).prefill(rows)[:, -2:], atol=1e-4)
    session.select([1, 0, 1])
    got = session.step([8, 9, 8])
    rows = np.concatenate([rows[[1, 0, 1]], [[8], [9], [8]]], axis=1)
    np.testing.assert_allclose(got, plain(name, variant).prefill(rows)[:, -1:], atol=1e-4)
    assert session.stats.compactions == 0


@MOVES
def test_the_model_itself_moves_slots(name: str, variant: str, form: str) -> None:
    if name == "lfm2":
        pytest.skip("linear caches have no slots")
    session = open_session(edited(name, variant, f"insert-reorder{{form={form}}}"))
    session.prefill(PROMPT)
    before = {cache: session.store.read(cache).copy() for cache in session.store.growing}
    kept = session.snapshot()
    session.reorder([2, 1, 0, 19], [0, 1, 2, 3])
    session.step([4])
    for cache, value in before.items():
        moved = value[:, :, [2, 1, 0, 19, *range(4, 20)]]
        np.testing.assert_allclose(session.store.read(cache)[:, :, :20], moved, atol=1e-5)
    session.restore(kept)
    got = session.step([9])
    np.testing.assert_allclose(got, plain(name, variant).prefill([*PROMPT, 9])[:, -1:], atol=1e-4)


@pytest.mark.parametrize(
    ("name", "variant", "pipeline"),
    [
        ("llama", "ov-stateful", "add-tree-mask"),
        ("gpt2", "ov-stateful", "add-tree-mask"),
        ("deepseek_v3", "onnx", "add-tree-mask"),
        ("gemma3_text", "ov-stateful", "window-from-positions,add-tree-mask"),
        ("llama", "ov-stateful", "add-tree-mask,insert-reorder{form=compact}"),
    ],
)
def test_a_branch_of_a_draft_tree_is_kept(name: str, variant: str, pipeline: str) -> None:
    session = open_session(edited(name, variant, pipeline))
    session.prefill(PROMPT)
    logits = session.step([DRAFT], parents=PARENTS)
    for node, path in enumerate(PATHS):
        alone = plain(name, variant).prefill([*PROMPT, *path])[0, -1]
        np.testing.assert_allclose(logits[0, node], alone, atol=1e-4)
    session.reorder([22, 24], [21, 22])
    session.rewind(23)
    got = session.step([[50, 51]])
    whole = plain(name, variant).prefill([*PROMPT, 30, 32, 34, 50, 51])
    np.testing.assert_allclose(got, whole[:, -2:], atol=1e-4)
    assert session.stats.compactions == 0


def test_the_model_itself_takes_steps_back() -> None:
    session = open_session(edited("lfm2", "ov-stateful", "insert-snapshot{slots=4}"))
    session.prefill(PROMPT)
    tokens = list(PROMPT)
    for round_ in range(12):
        session.step([[50 + round_, 7, 8, 9]])
        session.trim((3, 2, 3, 4)[round_ % 4])
        tokens += [50 + round_, 7][: (1, 2, 1, 0)[round_ % 4]]
    assert session.stats.snapshots == 1
    kept = session.snapshot()
    check_next(session, tokens)
    session.trim(1)
    session.select([0, 0])
    session.trim(2)
    got = session.step([4, 5])
    want = plain("lfm2", "ov-stateful").prefill([[*tokens[:-2], 4], [*tokens[:-2], 5]])[:, -1:]
    np.testing.assert_allclose(got, want, atol=1e-4)
    session.restore(kept)
    check_next(session, tokens)
    session.rewind(5)
    check_next(session, tokens[:5])


def check_next(session: DecodeSession, tokens: list[int]) -> None:
    assert session.length == len(tokens)
    want = plain("lfm2", "ov-stateful").prefill([*tokens, 3])[:, -1:]
    np.testing.assert_allclose(session.step([3]), want, atol=1e-4)


def test_windows_counting_positions_need_ordered_entries() -> None:
    assert past_order(edited("gemma3_text", "ov-stateful", "window-from-positions")) == "order"
