"""Lengths of a step, and expressions without padding."""

import pytest

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.expressions import ONE, TRUE, ZERO
from graphpass.analysis.symbolic.step import BATCH, LENGTH, PAST, TOTAL, is_input, unpadded

ROW, QUERY, KEY = ex.index("row", BATCH), ex.index("query", LENGTH), ex.index("key", TOTAL)
IS_TOKEN = ex.read("attention_mask", (ROW, KEY), "bool")
POSITION = ex.read("position_ids", (ROW, QUERY), "int")
BIAS = ex.read("bias", (ROW, QUERY), "real")


@pytest.mark.parametrize(
    ("expr", "plain"),
    [
        (IS_TOKEN, TRUE),
        (ex.choose(IS_TOKEN, ZERO, ONE), ZERO),
        (POSITION, ex.add(PAST, QUERY)),
        (ex.add(POSITION, ONE), ex.add(PAST, QUERY, ONE)),
        (BIAS, BIAS),
        (ex.read("count", (), "int"), ex.read("count", (), "int")),
        (ex.read(("cut", 1, 0), (QUERY,), "int"), ex.read(("cut", 1, 0), (QUERY,), "int")),
        (ex.at_most(KEY, POSITION), ex.at_most(KEY, ex.add(PAST, QUERY))),
    ],
)
def test_masks_are_one_and_positions_continue(expr, plain):
    assert unpadded(expr) is plain


def test_only_elements_of_named_inputs_are_inputs():
    assert [is_input(expr) for expr in (BIAS, ex.read(("cut", 1, 0), (), "int"), PAST)] == [True, False, False]
