"""Tables, ranges and sizes as text."""

import pytest

from graphpass.ir.cache import Axes
from graphpass.reports.text import axes_in_words, columns, in_bytes, layers_in_words, ranges, shortened, some_of, spoken


def test_columns_are_aligned_and_escaped():
    assert columns([("a", "long name", "x"), ("bb", "c\n", "")]) == ["  a   long name  x", "  bb  c\\n"]


@pytest.mark.parametrize(
    ("count", "verbose", "lines"),
    [(2, False, ["  a", "  b"]), (1, False, ["  a", "  and 1 more; --verbose prints all"]), (1, True, ["  a", "  b"])],
)
def test_long_lists_end_with_a_count(count, verbose, lines):
    assert shortened(["  a", "  b"], count, verbose=verbose) == lines


def test_names_beyond_the_first_are_counted():
    assert some_of("abc", 3) == "a, b, c"
    assert some_of("abc", 2) == "a, b and 1 more"


def test_documentation_loses_markup_and_options():
    text = "Use ``a`` or ``b\nc``.\n\nOptions:\n    x: One.\n        Two.\n\nAfter."
    assert spoken(text) == "Use a or b\nc.\n\nAfter."


@pytest.mark.parametrize(
    ("numbers", "text"), [((), ""), ((3,), "3"), ((0, 1, 2, 5, 7, 8), "0-2, 5, 7-8"), ((0, 2, 4), "0, 2, 4")]
)
def test_numbers_are_printed_as_ranges(numbers, text):
    assert ranges(numbers) == text


@pytest.mark.parametrize(
    ("layers", "text"), [([None], "no layer"), ([2, None, 2], "layer 2"), ([3, 1, 2, 7], "layers 1-3, 7")]
)
def test_layers_are_sorted(layers, text):
    assert layers_in_words(layers) == text


def test_axes_that_are_known():
    assert axes_in_words(Axes(batch=0, sequence=2)) == "batch 0, sequence 2"
    assert axes_in_words(Axes()) == "unknown"


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1540, "1.54 KB"), (2e6, "2 MB"), (5e9, "5 GB"), (7e12, "7e+03 GB")]
)
def test_sizes_have_three_digits(count, text):
    assert in_bytes(count) == text
