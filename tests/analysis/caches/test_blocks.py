"""Attention blocks with their caches, and windows in the mask or in the state."""

from dataclasses import replace

import pytest
from support.caches import cache

from graphpass.analysis.caches.blocks import beyond_reach, with_windows
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.testing import Family, parse_model, tiny_model

MODEL = tiny_model(Family(window=5), layers=2)
BLOCKS = analyze_caches(MODEL).attention


def test_blocks_read_the_caches_of_their_layer():
    found = [(block.layer, block.key, block.value, block.key_heads, block.head_dim) for block in BLOCKS]
    assert found == [(0, "past.0.key", "past.0.value", 2, 8), (1, "past.1.key", "past.1.value", 2, 8)]
    assert sorted(str(block.window) for block in BLOCKS) == ["5", "None"]


def test_caches_that_keep_more_than_their_windows_say_so():
    noted = {entry.name: entry.evidence[-1] for entry in analyze_caches(MODEL).caches}
    (windowed,) = (block for block in BLOCKS if block.window == 5)
    assert noted[windowed.key] == "a window of 5 in the mask only; the cache keeps all positions"
    assert "window" not in noted[next(block for block in BLOCKS if block is not windowed).key]


@pytest.mark.parametrize(
    ("readers", "line"),
    [
        ([(5, "mask"), (9, "mask")], "a window of 9 in the mask only"),
        ([(5, "mask"), (None, None)], None),
        ([(5, "state")], None),
        ([], None),
    ],
)
def test_the_widest_window_of_all_readers_counts(readers, line):
    blocks = [replace(BLOCKS[0], key="k", value="k", window=window, window_in=where) for window, where in readers]
    (noted,) = with_windows([cache("k")], blocks)
    assert noted.evidence[-1].startswith(line) if line is not None else noted == cache("k")
    assert with_windows([cache("k", kind="cross")], blocks) == (cache("k", kind="cross"),)


def test_decomposed_attention_in_bodies_cannot_be_fused():
    hidden = replace(BLOCKS[0], node="body/softmax", form="decomposed", fusable=True)
    fused = replace(hidden, form="fused")
    marked = beyond_reach([BLOCKS[0], hidden, fused], MODEL)
    assert marked[0] == BLOCKS[0]
    assert (marked[1].fusable, marked[1].reason) == (False, "it is in the body of a loop or branch")
    assert marked[2] == fused


WINDOWED = """%q = Parameter : f32[b, 2, n, 4]
%x = Parameter : f32[b, n, 8]
%heads = Reshape(%x, [0, 0, 2, 4])
%new = Transpose(%heads) {order=[0, 2, 1, 3]}
%k = Parameter : f32[b, 2, 6, 4]
%all = Concat(%k, %new) {axis=2}
%kept = Slice(%all, [-6], [99]) {axes=[2]}
%t = Transpose(%all) {order=[0, 1, 3, 2]}
%s = MatMul(%q, %t)
%w = Softmax(%s) {axis=3}
%y = MatMul(%w, %all)
Result(%y) {name=logits}
Result(%kept) {name=k_out}"""


def test_a_window_in_the_state_is_read_from_the_update():
    (block,) = analyze_caches(parse_model(WINDOWED)).attention
    assert (block.window_in, block.key, block.value) == ("state", "k", "k")
    assert block.window == 6
