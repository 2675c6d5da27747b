"""Questions about all batches, pasts, lengths and masks."""

from __future__ import annotations

import numpy
import pytest

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.constants import Table
from graphpass.analysis.symbolic.expressions import ONE, ZERO, number
from graphpass.analysis.symbolic.solver import example_of, never

BATCH, PAST, LENGTH = ex.length("batch", 1), ex.length("past"), ex.length("length", 1)
TOTAL = ex.add(PAST, LENGTH)
B, Q, K = ex.index("b", BATCH), ex.index("q", LENGTH), ex.index("k", TOTAL)
POSITION = ex.add(PAST, Q)
BIT = ex.read("attention_mask", (B, K), "bool")
CAUSAL = ex.at_most(K, POSITION)


def window(size):
    return ex.conjunction(CAUSAL, ex.less(ex.subtract(POSITION, number(size)), K), BIT)


def ones(upper):
    summed = ex.index("summed", TOTAL)
    return ex.running_sum(ex.choose(ex.read("attention_mask", (B, summed), "bool"), ONE, ZERO), summed, upper)


def faulty(condition):
    """Hide everything unless ``condition`` holds."""
    return ex.conjunction(window(8), condition)


FAULTS = {
    "a window of 32767 for 32768": (window(32768), window(32767)),
    "a total of 5000": (window(8), faulty(ex.less(TOTAL, number(5000)))),
    "the square of a total": (window(8), faulty(ex.less(ex.multiply(TOTAL, TOTAL), number(777**2)))),
    "a batch of 3": (window(8), faulty(ex.less(BATCH, number(3)))),
    "128 new tokens": (window(8), faulty(ex.negate(ex.equal(LENGTH, number(128))))),
    "more than 8 pads": (window(8), faulty(ex.less(ex.subtract(TOTAL, ones(ex.subtract(TOTAL, ONE))), number(9)))),
    "positions in f16": (CAUSAL, ex.at_most(K, ex.round_to("f16", POSITION))),
    "positions in bf16": (CAUSAL, ex.at_most(K, ex.round_to("bf16", POSITION))),
    "positions clamped at 40000": (CAUSAL, ex.at_most(K, ex.minimum(POSITION, number(40000)))),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_have_an_example(fault):
    right, wrong = FAULTS[fault]
    found = example_of(ex.negate(ex.equal(right, wrong)))
    assert not isinstance(found, str)
    past, length = found.values.get(PAST, 0), found.values.get(LENGTH, 1)
    # Each is found where it starts to matter, not at a random place beyond.
    assert past + length < 2**21


def test_forms_of_one_mask_are_equal():
    other = ex.conjunction(ex.less(K, ex.add(POSITION, ONE)), BIT, ex.less(ex.subtract(POSITION, K), number(8)))
    assert window(8) is other
    shifted = ex.conjunction(window(8), ex.disjunction(BIT, ex.equal(K, Q)))
    assert never(ex.negate(ex.equal(window(8), shifted)))


def test_positions_counted_by_the_mask_grow_with_it():
    assert never(ex.less(ones(K), ZERO))
    assert never(ex.less(ex.add(K, ONE), ones(K)))


def test_tables_have_their_own_numbers():
    table = Table("digest", numpy.array([1, 2, 3, 5]))
    place = ex.index("place", number(4))
    assert never(ex.less(number(5), ex.read(table, (place,), "int")))
    found = example_of(ex.equal(ex.read(table, (place,), "int"), number(3)))
    assert found.values[place] == 2


def test_opaque_parts_prevent_a_counterexample():
    opaque = ex.make("opaque", ("node", K), "bool")
    assert example_of(ex.conjunction(window(8), opaque)) == "unknown"
    assert example_of(ex.conjunction(opaque, ex.negate(opaque))) == "never"


def test_large_expressions_are_left_alone():
    found = ZERO
    for place in range(3000):
        found = ex.maximum(found, ex.add(ex.read("input", (number(place),), "int"), K))
    assert example_of(ex.less(found, ZERO)) == "unknown"


def test_comparisons_of_undefined_numbers_have_no_opposite():
    logarithm = ex.apply("log", (ex.subtract(POSITION, number(0.5)),))
    below, above = ex.less(logarithm, ZERO), ex.at_most(ZERO, logarithm)
    assert not never(ex.negate(ex.disjunction(below, above)))
    assert not never(ex.negate(ex.equal(logarithm, logarithm)))
    assert never(below, ex.negate(below))


def test_operators_of_other_algebras_have_any_value():
    """Routers of Phi-3.5 MoE compare products of scores, as the proof of structures writes them."""
    score = ex.make("times", (ONE, ex.read("scores", (B, K), "real")), "real")
    condition = ex.at_most(score, number(0.5))
    assert example_of(condition) == "unknown"
    assert never(condition, ex.negate(condition))
