"""Leaves of caches: windows and axis orders map indices of one model to those of the other."""

from graphpass.analysis.symbolic.expressions import index, number
from graphpass.verify.structure.leaves import CacheWindow, Leaf

ROW, HEAD, SLOT = (index(name, number(4)) for name in ("row", "head", "slot"))


def test_windows_move_indices_along_their_axis():
    window = CacheWindow(axis=2, first=3, count=5, is_filled=False)
    moved = window.shifted((ROW, HEAD, number(1)), window.first)
    assert moved == (ROW, HEAD, number(4))
    assert window.shifted(moved, -window.first) == (ROW, HEAD, number(1))


def test_places_are_in_the_order_of_the_common_form():
    assert Leaf("past", (0, 2, 1), 0).place((ROW, HEAD, SLOT)) == (ROW, SLOT, HEAD)
