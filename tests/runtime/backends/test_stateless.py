"""Presents become the pasts of the next step; models without caches read all tokens again."""

from dataclasses import replace

import numpy
import pytest
from support.loaded import exported
from support.slot_caches import CAPACITY, slot_decoder

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.errors import UsageError
from graphpass.runtime import open_session
from graphpass.runtime.backends.device import Device
from graphpass.runtime.backends.stateless import StatelessStore
from graphpass.testing import tiny_model


@pytest.fixture
def store():
    session = open_session(tiny_model("llama", layers=1))
    assert isinstance(session.store, StatelessStore)
    session.prefill([[5, 9, 14], [1, 2, 3]])
    return session, session.store


def test_presents_of_foreseen_length_are_written_without_a_copy(store):
    session, kept = store
    copied = kept.bytes_copied
    assert copied == 2 * 4 * 2 * 2 * 3 * 8
    for token in range(4):
        session.step([token, token + 1])
    assert kept.bytes_copied == copied
    assert {name: content.shape for name, content in session.contents().items()} == {
        "past.0.key": (2, 2, 7, 8),
        "past.0.value": (2, 2, 7, 8),
    }


def test_rows_and_entries_are_gathered(store):
    _, kept = store
    (cache, *_) = kept.growing
    before = kept.read(cache).copy()
    kept.gather(numpy.array([2, 0]), numpy.array([1, 1]))
    assert numpy.array_equal(kept.read(cache), before[[1, 1]][:, :, [2, 0]])


def test_forgotten_caches_are_empty(store):
    session, _ = store
    first = session.prefill([5, 9])
    session.step([3])
    session.reset()
    assert numpy.array_equal(session.prefill([5, 9]), first)


def test_models_without_caches_read_all_tokens_again():
    plain, cached = open_session(exported("llama/onnx-nocache")), open_session(exported("llama/onnx"))
    for session in (plain, cached):
        session.prefill([5, 9])
    assert plain.store.replays
    results = [session.step([[7, 3]]) for session in (plain, cached)]
    assert results[0].shape[1] == 2
    numpy.testing.assert_allclose(*results, atol=1e-4)


@pytest.mark.parametrize("dialect", ["onnx", "openvino"])
def test_counted_slots_of_caches_of_fixed_capacity(dialect):
    session = open_session(slot_decoder(dialect))
    whole = session.prefill([[5, 9, 14, 3, 7]])
    session.reset()
    parts = [session.prefill([[5, 9, 14]]), session.step([[3, 7]])]
    numpy.testing.assert_allclose(numpy.concatenate(parts, axis=1), whole, atol=1e-5)
    with pytest.raises(UsageError, match=f"5 of {CAPACITY} positions are taken") as caught:
        session.step([[1] * (CAPACITY - 4)])
    assert caught.value.id == "GP267"


def test_the_smallest_cache_limits_the_positions():
    model = slot_decoder("onnx")
    first, second = analyze_caches(model).caches
    inventory = replace(analyze_caches(model), caches=(replace(first, shape=("b", 2, 5, 4)), second))
    kept = StatelessStore(model, inventory, Device("CPU", True, {}))
    kept.check_room(1, 4)
    with pytest.raises(UsageError, match="5 of 5 positions are taken"):
        kept.check_room(1, 5)
