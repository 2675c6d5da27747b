"""Passes on graphs of a few operators: text before and after, and the same outputs for random inputs."""

from pathlib import Path

import pytest

from graphpass.testing import read_cases


@pytest.mark.parametrize("case", read_cases(Path(__file__).parent), ids=str)
def test_cases_in_text_hold(case):
    case.check()
