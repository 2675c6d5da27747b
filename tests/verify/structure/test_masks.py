"""Masks that are equal for every step are one condition."""

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.expressions import number
from graphpass.verify.structure.masks import KnownMasks

PAST, LENGTH = ex.length("past"), ex.length("length", 1)
QUERY, KEY = ex.index("query", LENGTH), ex.index("key", ex.add(PAST, LENGTH))
POSITION = ex.add(PAST, QUERY)


def test_the_first_of_equal_masks_stands_for_all():
    masks, causal = KnownMasks(), ex.at_most(KEY, POSITION)
    other = ex.conjunction(causal, ex.disjunction(ex.at_most(KEY, ex.add(POSITION, number(1))), ex.less(PAST, KEY)))
    assert other is not causal
    assert masks.known(causal, KEY) is causal
    assert masks.known(other, KEY) is causal
    assert masks.known(other, KEY) is causal


def test_masks_that_differ_for_some_step_are_two():
    masks, causal = KnownMasks(), ex.at_most(KEY, POSITION)
    window = ex.conjunction(causal, ex.less(ex.subtract(POSITION, KEY), number(3)))
    assert masks.known(causal, KEY) is causal
    assert masks.known(window, KEY) is window
    assert masks.known(causal, KEY) is causal


def test_a_query_without_keys_is_ignored_only_as_padding():
    """The first query attends to no key by `earlier`; without an input that excludes padding it is a token."""
    earlier, first = ex.less(KEY, POSITION), ex.at_most(POSITION, number(0))
    other = ex.disjunction(earlier, first)
    masks, padded = KnownMasks(), ex.read("attention_mask", (KEY,), "bool")
    assert masks.known(earlier, KEY) is earlier
    assert masks.known(other, KEY) is other
    causal = ex.conjunction(ex.at_most(KEY, POSITION), padded)
    queried = ex.conjunction(causal, ex.read("attention_mask", (POSITION,), "bool"))
    assert masks.known(queried, KEY) is queried
    assert masks.known(causal, KEY) is queried
