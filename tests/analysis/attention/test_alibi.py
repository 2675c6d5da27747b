"""ALiBi: slopes of biases that are linear in the position of the key."""

from dataclasses import replace

import pytest

from graphpass.analysis.attention.alibi import alibi_slopes
from graphpass.analysis.attention.mask import Scope
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.expressions import number
from graphpass.analysis.symbolic.step import BATCH, LENGTH, PAST, TOTAL

HEAD, KEY, QUERY = ex.index("head", number(2)), ex.index("key", TOTAL), ex.index("query", LENGTH)
SCOPE = Scope(ex.index("row", BATCH), HEAD, QUERY, KEY)
SLOPE = ex.choose(ex.equal(HEAD, number(0)), number(0.5), number(0.25))
DISTANCE = ex.subtract(KEY, PAST)
BEHIND = ex.subtract(SCOPE.position, KEY)
APART = ex.choose(ex.less(BEHIND, number(0)), ex.multiply(number(-1), BEHIND), BEHIND)


@pytest.mark.parametrize(
    ("bias", "slopes"),
    [
        (ex.multiply(SLOPE, KEY), (0.5, 0.25)),
        (ex.multiply(SLOPE, DISTANCE), (0.5, 0.25)),
        (ex.add(ex.multiply(SLOPE, KEY), SLOPE), (0.5, 0.25)),
        (ex.multiply(SLOPE, ex.multiply(number(-1), APART)), (0.5, 0.25)),
        (ex.multiply(number(0.5), KEY), None),
        (SLOPE, None),
        (ex.multiply(SLOPE, ex.multiply(KEY, KEY)), None),
        (ex.multiply(SLOPE, ex.read("bias", (KEY,), "real")), None),
        (ex.choose(ex.less(KEY, number(7)), ex.multiply(SLOPE, KEY), number(0.0)), None),
    ],
)
def test_slopes_of_heads(bias, slopes):
    assert alibi_slopes(bias, SCOPE, is_causal=True) == slopes


def test_the_bias_of_later_keys_counts_if_they_are_visible():
    assert alibi_slopes(ex.multiply(SLOPE, APART), SCOPE, is_causal=False) is None


def test_queries_have_equal_slopes():
    assert alibi_slopes(ex.multiply(SLOPE, ex.multiply(KEY, QUERY)), SCOPE, is_causal=True) is None


def test_an_open_number_of_heads_has_no_slopes():
    head = ex.index("head", ex.length("heads", 1))
    scope = replace(SCOPE, head=head)
    assert alibi_slopes(ex.multiply(ex.substitute(SLOPE, {HEAD: head}), KEY), scope, is_causal=True) is None
