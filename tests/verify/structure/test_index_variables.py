"""Index variables have one order in every process, and are split where a size divides them."""

import os
import subprocess
import sys

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.step import LENGTH, PAST
from graphpass.verify.structure.index_variables import digits_of, divisor_of, without_offsets

CODE = """
from graphpass.analysis.symbolic import expressions as ex
from graphpass.verify.structure.index_variables import variables
size = ex.number(8)
indices = [ex.index(f"index {place}", size) for place in range(6)]
reads = [ex.read(f"input {place}", (one,), "real") for place, one in enumerate(indices)]
print([one.args[0] for one in variables([ex.add(*reads)])])
"""


def test_indices_are_ordered_alike_in_all_processes():
    orders = {
        subprocess.run(
            [sys.executable, "-c", CODE],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(3)
    }
    assert len(orders) == 1


def test_the_smallest_size_that_divides_an_index_splits_it():
    index = ex.index("channel", ex.number(24))
    body = ex.read("x", (ex.floor_divide(index, ex.number(8)), ex.modulo(index, ex.number(4))), "real")
    divisor, count = divisor_of(index, [body])
    assert (divisor.as_number, count.as_number) == (4, 6)
    (_, remainder), places = digits_of(index, divisor, count)
    assert ex.substitute(ex.modulo(index, divisor), places) is remainder
    assert divisor_of(ex.index("other", ex.number(7)), [body]) is None


def test_bodies_are_functions_of_an_index_with_its_largest_offset():
    token = ex.index("token", LENGTH)
    body = ex.read("angle", (ex.add(PAST, token),), "real")
    (moved,), arguments, sizes = without_offsets([body], [])
    ((index, whole),) = arguments.items()
    assert moved is ex.read("angle", (index,), "real")
    assert whole is ex.add(PAST, token)
    assert sizes == {index: LENGTH}
    assert without_offsets([body], [token]) == ([body], {}, {})


def test_a_sum_that_may_be_negative_is_no_variable_of_conditions():
    row = ex.index("row", ex.number(8))
    below = ex.read("x", (ex.subtract(row, ex.number(4)),), "real")
    assert without_offsets([below], [])[1]
    chosen = ex.choose(ex.at_most(row, ex.number(3)), ex.read("y", (), "real"), below)
    assert without_offsets([chosen], []) == ([chosen], {}, {})


def test_conditions_on_a_sum_have_its_range():
    row = ex.index("row", ex.number(8))
    later = ex.add(row, ex.number(4))
    body = ex.choose(ex.at_most(later, ex.number(7)), ex.read("x", (later,), "real"), ex.ZERO)
    (moved,), arguments, _ = without_offsets([body], [])
    assert moved.op == "choose"
    assert ex.substitute(moved, arguments) is body
