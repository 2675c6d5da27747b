"""Indices have one order in every process, whatever Python's hashes of text are."""

import os
import subprocess
import sys

import pytest

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.step import LENGTH, PAST, TOTAL
from graphpass.verify.structure.algebra import Algebra
from graphpass.verify.structure.angles import AngleTables
from graphpass.verify.structure.definitions import Definitions
from graphpass.verify.structure.masks import KnownMasks

CODE = """
from graphpass.analysis.symbolic import expressions as ex
from graphpass.verify.structure.definitions import variables
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


@pytest.mark.parametrize("kind", ["level", "sum"])
def test_indices_with_several_offsets_begin_at_the_least(kind):
    """One model reads an appended element by its place in the cache, the other by that of the new token."""
    definitions = Definitions(Algebra(AngleTables(frozenset()), 1000, []), KnownMasks())

    def element(new: ex.Expr, position: ex.Expr) -> ex.Expr:
        return ex.multiply(ex.read("new", (new,), "real"), ex.read("angle", (position,), "real"))

    key, token = ex.index("key", TOTAL), ex.index("token", LENGTH)
    of_cache = definitions.abstract(kind, (), (element(ex.subtract(key, PAST), key),), ())
    of_token = definitions.abstract(kind, (), (element(token, ex.add(PAST, token)),), ())
    assert ex.substitute(of_cache, {key: ex.add(PAST, token)}) is of_token
