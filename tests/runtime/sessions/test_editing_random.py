"""After any edits a session computes what the tokens that are left compute from scratch."""

from __future__ import annotations

import os
import random
import sys
import time

import numpy as np
import pytest
from edits.machine import Subject, run_edits
from edits.oracle import Oracle
from edits.subjects import forms, subject, trees

from graphpass.errors import UnsupportedError

#: One of each: kind of model, backend, and way of keeping caches.
QUICK = [
    ("llama", "converted"),
    ("qwen3", "ov-stateful"),
    ("gemma3_text", "ov-stateful"),
    ("llama", "ov-stateless"),
    ("gpt2", "onnx"),
    ("lfm2", "ov-stateful"),
    ("lfm2", "ov-stateless"),
    ("mamba", "onnx-raw"),
]


#: How many edit sequences are run.
SEQUENCES = pytest.mark.parametrize("sequences", [3, pytest.param(12, marks=pytest.mark.slow)])


@SEQUENCES
@pytest.mark.parametrize(("name", "variant"), QUICK)
def test_random_edits_equal_recomputation(name: str, variant: str, sequences: int) -> None:
    run_edits(subject(name, variant), sequences)


@SEQUENCES
@pytest.mark.parametrize("passes", ["expose-position-ids", "mask-padding,expose-position-ids"])
def test_random_edits_of_a_hybrid_with_position_ids(passes: str, sequences: int) -> None:
    run_edits(subject("lfm2", "ov-stateful", passes), sequences)


@SEQUENCES
@pytest.mark.parametrize(
    ("name", "variant"),
    [("llama", "ov-stateful"), ("gemma3_text", "ov-stateful"), ("qwen3", "ov-stateless"), ("gpt2", "onnx")],
)
def test_random_edits_with_trees_of_drafts(name: str, variant: str, sequences: int) -> None:
    run_edits(subject(name, variant, trees(variant)), sequences)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "variant"), forms())
def test_random_edits_of_every_form(name: str, variant: str, capsys: pytest.CaptureFixture[str]) -> None:
    """``GRAPHPASS_EDIT_SEQUENCES`` says how many for each form."""
    run_many(f"{name} {variant}", subject(name, variant), capsys)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "variant"), forms())
def test_random_edits_of_every_form_with_trees(name: str, variant: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        tested = subject(name, variant, trees(variant))
    except UnsupportedError as error:
        pytest.skip(f"holds no tree: {error.message}")
    run_many(f"{name} {variant} with trees", tested, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["granitemoehybrid", "lfm2", "qwen3_next"])
def test_random_edits_of_hybrids_with_position_ids(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    run_many(f"{name} told positions", subject(name, "ov-stateful", "expose-position-ids"), capsys)


def run_many(name: str, tested: Subject, capsys: pytest.CaptureFixture[str]) -> None:
    sequences = int(os.environ.get("GRAPHPASS_EDIT_SEQUENCES", "2"))
    seed = random.randrange(1 << 32) if "GRAPHPASS_EDIT_SEQUENCES" in os.environ else None
    began = time.perf_counter()
    with capsys.disabled():
        sys.stdout.write(f"\n{name}: {sequences} edit sequences of seed {seed}")
        run_edits(tested, sequences, random=seed)
        sys.stdout.write(f", {time.perf_counter() - began:.1f} s")


@pytest.mark.parametrize(
    ("name", "variant"),
    [("llama", "ov-stateless"), ("lfm2", "ov-stateless"), ("lfm2", "ov-stateful"), ("mamba", "onnx-raw")],
)
def test_a_snapshot_is_restored_into_an_empty_session(name: str, variant: str) -> None:
    tested = subject(name, variant)
    session, oracle = tested.session, Oracle(tested.recompute)
    tested.check(session.prefill([[3], [5]]), oracle.prefill([[3], [5]]))
    tested.check(session.step([[4], [6]]), oracle.step([[4], [6]]))
    kept = session.snapshot()
    session.rewind(0)
    session.restore(kept)
    tested.check(session.step([[9], [9]]), oracle.step([[9], [9]]))


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        pytest.param("llama", "ov-stateful", marks=pytest.mark.slow),
        pytest.param("gemma3_text", "ov-stateful", marks=pytest.mark.slow),
        pytest.param("gpt2", "onnx", marks=pytest.mark.slow),
        ("lfm2", "ov-stateful"),
    ],
)
def test_many_trims_in_a_row_leave_no_drift(name: str, variant: str) -> None:
    """openvino#35721 saw generation degenerate after a hundred."""
    tested = subject(name, variant)
    session, oracle = tested.session, Oracle(tested.recompute)
    tested.check(session.prefill([[1, 5, 9, 14]]), oracle.prefill([[1, 5, 9, 14]]))
    drafts = np.random.default_rng(7).integers(0, 320, (150, 1, 4)).tolist()
    for number, ids in enumerate(drafts):
        kept = number % 3 == 0
        tested.check(session.step(ids), oracle.step(ids))
        for edited in (session, oracle):
            edited.trim(4 - kept)
    assert session.length == 4 + 50
