"""Conditions of masks are named by what they compare."""

import pytest

from graphpass.analysis.attention.mask import Scope
from graphpass.analysis.attention.mask_parts import _counted_causal
from graphpass.analysis.symbolic import expressions as ex


@pytest.mark.parametrize(("values", "expected"), [((ex.ONE, ex.ZERO), True), ((ex.ONE, ex.number(-1)), False)])
def test_sums_of_0_and_1_alone_grow_from_key_to_key(values, expected):
    batch, length, total = ex.length("batch", 1), ex.length("length", 1), ex.length("total", 1)
    scope = Scope(ex.index("b", batch), ex.index("h", ex.number(2)), ex.index("q", length), ex.index("k", total))
    bound = ex.index("summed", total)
    body = ex.choose(ex.read("attention_mask", (scope.row, bound), "bool"), *values)
    sums = (ex.running_sum(body, bound, upper) for upper in (scope.key, scope.position))
    assert (_counted_causal(ex.at_most(*sums), scope) is not None) is expected
