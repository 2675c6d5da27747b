"""Sessions whose past and present are one buffer that grows."""

from __future__ import annotations

import numpy
import pytest
from support.loaded import exported, run_once

from graphpass.runtime import open_session
from graphpass.runtime.backends.stateless import StatelessStore

FUSE = "fuse-group-query-attention{context=512}"


def test_batches_compute_the_same_across_growth():
    sessions = open_session(exported("llama/onnx")), open_session(run_once(exported("llama/onnx"), FUSE).model)
    assert sessions[1].store.grows
    ids = numpy.random.default_rng(0).integers(3, 300, (2, 60))
    mask = numpy.ones_like(ids)
    mask[0, :7] = 0
    one, other = (session.prefill(ids, mask) for session in sessions)
    numpy.testing.assert_allclose(other[mask == 1], one[mask == 1], atol=2e-5)
    assert sessions[1].store.capacity == 64
    for token in range(5, 15):
        one, other = (session.step([token, token + 1]) for session in sessions)
        numpy.testing.assert_allclose(other, one, atol=2e-5)
    assert sessions[1].store.capacity == 128


def test_steps_copy_nothing():
    session = open_session(run_once(exported("llama/onnx"), FUSE).model)
    session.prefill([[5, 9, 17]])
    places = {name: buffer.ctypes.data for name, buffer in session.store.buffers.items()}
    for token in range(20):
        session.step([token])
    assert places == {name: buffer.ctypes.data for name, buffer in session.store.buffers.items()}


def test_edits_are_exact_after_growth():
    session = open_session(run_once(exported("llama/onnx"), FUSE).model)
    ids = numpy.random.default_rng(1).integers(3, 300, 90)
    session.prefill(ids[None, :70])
    session.rewind(30)
    found = session.step(ids[None, 30:50])
    wanted = open_session(exported("llama/onnx")).prefill(ids[None, :50])[:, 30:]
    numpy.testing.assert_allclose(found, wanted, atol=2e-5)


@pytest.mark.parametrize("place", ["llama/onnx", "lfm2/onnx-genai"])
def test_other_models_keep_two_memories(place):
    assert isinstance(open_session(exported(place)).store, StatelessStore)


def test_models_of_the_builder_run_in_place():
    assert open_session(exported("qwen3/onnx-genai")).store.grows
