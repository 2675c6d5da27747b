"""Indices have one order in every process, whatever Python's hashes of text are."""

import os
import subprocess
import sys

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
