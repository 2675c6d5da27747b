"""Compare results of every fixture with those that `record.py` recorded."""

import itertools
import json

import pytest
from golden.record import RESULTS, cases, compare, result

CASES = cases()
KNOWN = json.loads(RESULTS.read_text())

#: In this many cases all kinds of pipelines occur.
SAMPLE = 40


def check(names):
    assert not list(compare({name: result(name) for name in names}, KNOWN))


def test_all_are_recorded():
    assert sorted(KNOWN) == sorted(CASES)


@pytest.mark.parametrize("name", CASES[:: len(CASES) // SAMPLE])
def test_results_equal_the_recorded_ones(name):
    check([name])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "names"),
    [(place, list(names)) for place, names in itertools.groupby(CASES, lambda name: name.partition(":")[0])],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_result_of_a_file(place, names):
    check(names)
