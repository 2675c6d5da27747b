"""Moves of slots that no decoding would ask for, against caches that numpy edits."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import openvino
import pytest
from edits.machine import TOKENS
from edits.subjects import forms, subject
from hypothesis import given, settings, strategies as some
from support.decode import EXACT, Decoder
from support.models import export, fixtures

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.io import load
from graphpass.passes.caches.make_stateless import MakeStateless

#: Where optimum's exports have the sequence in a cache.
SEQUENCE_AXIS = 2

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


class Contents:
    """A stateless model, and the contents of its caches, one slot a position."""

    def __init__(self, compiled: openvino.CompiledModel) -> None:
        self._decoder = Decoder(compiled.create_infer_request())

    @property
    def length(self) -> int:
        return int(self._decoder.mask.shape[1])

    def step(self, ids: Sequence[Sequence[int]]) -> np.ndarray:
        """The last position's logits, ``[batch, vocabulary]``."""
        return self._decoder.step(np.array(ids))

    def rewind(self, length: int) -> None:
        self._decoder.mask = self._decoder.mask[:, :length]
        self._edit(np.arange(length))

    def reorder(self, src: Sequence[int], dst: Sequence[int]) -> None:
        slots = np.arange(self.length)
        slots[list(dst)] = src
        self._edit(slots)

    def _edit(self, slots: np.ndarray) -> None:
        pasts = self._decoder.pasts
        pasts.update({name: past.take(slots, SEQUENCE_AXIS) for name, past in pasts.items()})


@functools.cache
def stateless(name: str) -> openvino.CompiledModel:
    """The stateless form of a fixture on the CPU plugin, in f32."""
    return openvino.Core().compile_model(stateless_model(name), "CPU", EXACT)


def stateless_model(name: str) -> openvino.Model:
    files = [fixtures() / name / "ov-stateless" / "openvino_model.xml", fixtures() / name / "onnx" / "model.onnx"]
    for file in files:
        if file.exists():
            return openvino.Core().read_model(str(file))
    model = PassManager([MakeStateless()]).run(load(export(name, "ov-stateful"))).model
    assert isinstance(model, OpenVINOModel)
    return model.ov_model


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
