"""Added numbers: the condition under which they exclude a key, and their value at other keys."""

import math

import pytest

from graphpass.analysis.attention.added_masks import hides, is_infinite, shown
from graphpass.analysis.caches.masks import find_masks
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.expressions import FALSE, ONE, ZERO, number
from graphpass.testing import parse_model

KEY = ex.index("key", ex.length("keys", 1))
IS_TOKEN = ex.read("attention_mask", (KEY,), "bool")
LOWEST, BIAS = number(-3.4e38), ex.read("bias", (KEY,), "real")
LOGARITHM = ex.apply("log", (BIAS,))
PADDING = ex.negate(IS_TOKEN)


@pytest.mark.parametrize(
    ("added", "hidden_if", "at_visible_keys"),
    [
        (ZERO, FALSE, ZERO),
        (BIAS, FALSE, BIAS),
        (ex.choose(IS_TOKEN, ZERO, LOWEST), PADDING, ZERO),
        (ex.choose(IS_TOKEN, BIAS, LOWEST), PADDING, BIAS),
        (ex.choose(IS_TOKEN, ZERO, number(-1.5)), FALSE, ex.choose(IS_TOKEN, ZERO, number(-1.5))),
        (ex.multiply(ex.choose(IS_TOKEN, ZERO, ONE), LOWEST), PADDING, ZERO),
        (ex.multiply(ex.subtract(ONE, ex.choose(IS_TOKEN, ONE, ZERO)), number(-(10**9))), PADDING, ZERO),
        (ex.add(ex.choose(IS_TOKEN, ZERO, LOWEST), BIAS), PADDING, BIAS),
        (ex.maximum(BIAS, LOWEST), FALSE, BIAS),
        (ex.maximum(LOGARITHM, LOWEST), FALSE, LOGARITHM),
    ],
)
def test_low_numbers_exclude_keys(added, hidden_if, at_visible_keys):
    assert hides(added) is hidden_if
    assert shown(added) is at_visible_keys


BOUNDED = """
%q = Parameter : f32[b, 2, n, 8]
%shape = ShapeOf(%q)
%n = Gather(%shape, 2) {axis=0}
%range = Range(0, %n, 1)
%keys = Unsqueeze(%range) {axes=[0, 1, 2]}
%queries = Unsqueeze(%range) {axes=[0, 1, 3]}
%seen = LessEqual(%keys, %queries)
%distance = Convert(%keys) {to=f32}
%alibi = Multiply(%distance, [[[[0.25]], [[0.5]]]])
%chosen = Select(%seen, %alibi, -3.4028235e+38)
%mask = Maximum(%chosen, -3.4028235e+38)
%y = ScaledDotProductAttention(%q, %q, %q, %mask)
Result(%y) {name=y}
"""


def test_a_mask_bounded_by_the_lowest_number_is_read():
    (mask,) = parse_model(BOUNDED, "openvino").analysis(find_masks)
    assert mask.is_causal
    assert not mask.residue
    assert mask.slopes == (0.25, 0.5)


def test_infinity_among_added_numbers():
    infinity = number(-math.inf)
    masked = ex.choose(IS_TOKEN, ZERO, infinity)
    assert is_infinite(ex.add(masked, BIAS)) is PADDING
    assert is_infinite(ex.choose(IS_TOKEN, BIAS, LOWEST)) is FALSE
    assert is_infinite(ex.maximum(ex.add(masked, BIAS), LOWEST)) is FALSE
    assert is_infinite(ex.apply("exp", (masked,))) is None
