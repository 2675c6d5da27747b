"""Exit codes of runs."""

import pytest
from matrix.cells import CONVERTED, OTHERS, cell, failed, run_of

from graphpass.matrix.cells import CellResult


@pytest.mark.parametrize(
    ("results", "given", "code"),
    [
        (OTHERS, {}, 0),
        (OTHERS, {"fail_on": ["warning"]}, 1),
        ((CONVERTED, failed()), {}, 1),
        ((CONVERTED, failed(exit_code=3)), {}, 1),
        ((CONVERTED, failed(exit_code=70)), {}, 70),
        ((CONVERTED, CellResult(cell("c"), "cancelled")), {"interrupted": True}, 130),
        ((CONVERTED, CellResult(cell("c"), "cancelled")), {}, 1),
    ],
)
def test_exit_codes_follow_from_results(results, given, code):
    assert run_of(*results, **given).exit_code == code
