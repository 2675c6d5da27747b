"""Heads of keys and values that a Tile repeats as a whole, and what keeps query heads from being permuted."""

import pytest

from graphpass.analysis.attention.tiled_heads import find_tiled_heads
from graphpass.ir.miss import Miss
from graphpass.testing import parse_model

MODEL = """%q = Parameter : f32[b, 6, n, 4]
%k = Parameter : f32[b, 2, m, 4]
%v = Parameter : f32[b, 2, m, 4]
%mask = Parameter : f32[b, 1, n, m]
%sink = Constant : f32[1, 6, 1, 1]
%keys = Tile(%k, [1, 3, 1, 1])
%values = Tile(%v, [1, 3, 1, 1])
%y = ScaledDotProductAttention(%q, %keys, %values, %mask)
Result(%y) {name=y}"""


def found(old="", new=""):
    text = MODEL.replace(old, new)
    assert (text == MODEL) == (old == new)
    return find_tiled_heads(parse_model(text, "openvino"))


def test_heads_and_times():
    (tiled,) = found()
    assert (tiled.heads, tiled.times, tiled.query.name) == (2, 3, "q")
    assert [tile.name for tile in tiled.tiles] == ["keys", "values"]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("f32[b, 1, n, m]", "f32[b, 6, n, m]", "its mask or attention sink differs from head to head"),
        ("[1, 3, 1, 1]", "[1, 3, 2, 1]", "it does not repeat a known number of heads"),
        ("Result(%y) {name=y}", "Result(%y) {name=y}\nResult(%values) {name=z}", "other users than the attention"),
        ("%values, %mask)", "%values, %mask, 0.5, %sink)", "its mask or attention sink differs from head to head"),
        ("%values = Tile(%v, [1, 3, 1, 1])", "%two = Concat(%v, %v, %v) {axis=1}\n%values = Tile(%two, [1, 1, 1, 1])",
         "equal for key and value"),
    ],
)  # fmt: skip
def test_heads_that_cannot_be_permuted(old, new, reason):
    (miss,) = found(old, new)
    assert isinstance(miss, Miss)
    assert reason in miss.reason


def test_one_tile_is_not_enough():
    assert found("%values = Tile(%v, [1, 3, 1, 1])", "%values = Concat(%v, %v, %v) {axis=1}") == ()
