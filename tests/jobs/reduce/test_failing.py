"""Failing cases as text."""

from graphpass.jobs.reduce.failing import Failing


def test_the_text_states_sizes_and_inputs():
    text = (
        "// RUN: fuse-functions\n// DIALECT: openvino\n// KEEPS: slow\n// SIZES: n2=2\n"
        '// INPUT: %"a b" = [[1, -2]]:i64\n%"a b" = Parameter : i64[n2, 2]\nResult(%"a b") {name=y}\n'
    )
    case = Failing.parse(text)
    assert str(case) == text
    assert (case.sizes, case.feeds["a b"].tolist()) == ({"n2": 2}, [[1, -2]])
