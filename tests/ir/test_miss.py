"""Misses as results of functions."""

import pytest

from graphpass.ir.miss import Miss, MissError, or_miss
from graphpass.testing import parse_model


def test_a_raised_miss_is_returned():
    (node,) = parse_model("%x = Parameter : f32[4]\n%y = Relu(%x)\nResult(%y) {name=y}").graph.of_op("Relu")

    @or_miss
    def find(fails):
        if fails:
            raise MissError(node, "it is a Relu")
        return 3

    assert find(fails=False) == 3
    assert find(fails=True) == Miss(node, "it is a Relu")
    assert str(find(fails=True)) == f"it is a Relu (at {node.called})"


def test_other_errors_pass():
    with pytest.raises(ZeroDivisionError):
        or_miss(lambda: 1 // 0)()
