"""Moves of slots that no decoding would ask for, against caches that numpy edits."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as some
from support.contents import Contents, compiled
from support.edit_machine import TOKENS
from support.edited import forms, subject

stateless = functools.cache(compiled)

QUICK = [
    ("llama", "ov-stateful", ""),
    ("llama", "ov-stateful", "insert-reorder{form=gpu}"),
    ("llama", "ov-stateful", "insert-reorder{form=compact}"),
    ("gemma3_text", "ov-stateful", ""),
    ("qwen3", "ov-stateless", ""),
    ("gpt2", "onnx", ""),
    ("gpt2", "onnx", "insert-reorder{form=onnx}"),
]

#: Only caches of keys and values have slots.
MOVABLE = [
    (name, variant) for name, variant in forms() if name not in {"granitemoehybrid", "lfm2", "mamba", "qwen3_next"}
]


def moves_any_slots(name: str, variant: str, passes: str, sequences: int) -> None:
    session, model = subject(name, variant, passes).session, stateless(name)

    @settings(max_examples=sequences, deadline=None, derandomize=True)
    @given(some.data())
    def property_holds(data: some.DataObject) -> None:
        contents = Contents(model)
        ids = data.draw(some.lists(TOKENS, min_size=2, max_size=12))
        session.prefill([ids])
        contents.step([ids])
        for _ in range(data.draw(some.integers(1, 4))):
            slots = some.integers(0, contents.length - 1)
            dst = data.draw(some.lists(slots, unique=True, min_size=1, max_size=6))
            src = data.draw(some.lists(slots, min_size=len(dst), max_size=len(dst)))
            length = data.draw(some.integers(1, contents.length))
            ids = data.draw(some.lists(TOKENS, min_size=1, max_size=3))
            for edited in (session, contents):
                edited.reorder(src, dst)
                edited.rewind(length)
            np.testing.assert_allclose(session.step([ids])[:, -1], contents.step([ids]), rtol=0, atol=1e-4)

    property_holds()


@pytest.mark.parametrize(("name", "variant", "passes"), QUICK)
def test_any_slots_can_move(name: str, variant: str, passes: str) -> None:
    moves_any_slots(name, variant, passes, 10)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "variant"), MOVABLE)
def test_any_slots_can_move_in_every_form(name: str, variant: str) -> None:
    moves_any_slots(name, variant, "", 5)
