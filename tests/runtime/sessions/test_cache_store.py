"""Caches that edits would leave in no known state."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.maskless import maskless

from graphpass.errors import UnsupportedError
from graphpass.ir.cache import AttentionBlock, Axes, Cache, Inventory
from graphpass.runtime import open_session
from graphpass.runtime.sessions.cache_store import check_editable
from graphpass.testing import run

KEY = Cache("k", "kv", "key", 0, Axes(0, 1, 2, 3), (None, 2, None, 16), "f32", "k", "present")
VALUE = replace(KEY, name="v", role="value", read="v")
BLOCK = AttentionBlock("attention", "ScaledDotProductAttention", "k", "v")
INVENTORY = Inventory(stateful=True, caches=(KEY, VALUE), attention=(BLOCK,))


@pytest.mark.parametrize("passes", ["drop-identities", "to-openvino"])
def test_padding_is_refused_without_an_input_for_it(passes: str) -> None:
    session = open_session(run(maskless(), passes))
    assert session.prefill([[1, 5, 9]], [[1, 1, 1]]).shape[:2] == (1, 3)
    with pytest.raises(UnsupportedError, match="no input attention_mask") as caught:
        session.prefill([[0, 5, 9]], [[0, 1, 1]])
    assert caught.value.id == "GP376"


def test_growing_and_windowed_caches_are_edited() -> None:
    check_editable(INVENTORY)
    for place in ("mask", "state"):
        check_editable(replace(INVENTORY, attention=(replace(BLOCK, window=8, window_in=place),)))


@pytest.mark.parametrize(
    "inventory",
    [
        replace(INVENTORY, caches=(replace(KEY, kind="unknown"),)),
        replace(INVENTORY, caches=(replace(KEY, shape=(None, 2, 128, 16)),)),
        replace(INVENTORY, caches=(replace(KEY, axes=Axes(0, 1, None, 3)),)),
    ],
)
def test_other_caches_are_refused(inventory: Inventory) -> None:
    with pytest.raises(UnsupportedError, match="cannot edit cache k") as caught:
        check_editable(inventory)
    assert caught.value.id == "GP370"
