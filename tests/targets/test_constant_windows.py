"""Windows that a model stores as a constant: squares that hide other positions than later ones."""

import pytest

from graphpass.targets.constant_windows import constant_window
from graphpass.testing import parse_model

LOW = "-3.4e38"


@pytest.mark.parametrize(
    ("constant", "found"),
    [
        ("[[true, false, false], [true, true, false], [false, true, true]]", True),
        ("[[true, false, false], [true, true, false], [true, true, true]]", False),
        ("[[1, 0, 0], [1, 1, 0], [0, 1, 1]]:i64", True),
        ("[[0, 1, 2], [-1, 0, 1], [-2, -1, 0]]:i64", False),
        (f"[[0.0, {LOW}, {LOW}], [0.0, 0.0, {LOW}], [{LOW}, 0.0, 0.0]]", True),
        (f"[[0.0, {LOW}, {LOW}], [0.0, 0.0, {LOW}], [0.0, 0.0, 0.0]]", False),
        ("[[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 1.0, 1.0]]", True),
        ("[[0.0, -1.0, -2.0], [-1.0, 0.0, -1.0], [-2.0, -1.0, 0.0]]", False),
        ("[[true, false, false], [true, true, false]]", False),
    ],
)
def test_squares_that_hide_earlier_positions(constant, found):
    graph = parse_model(f"%c = Transpose({constant}, [0, 1])\nResult(%c) {{name=y}}", "openvino").graph
    assert (constant_window(graph, graph.writes["y"].source()) is not None) == found


def test_without_a_mask_there_is_no_window():
    graph = parse_model("%x = Parameter : f32[3, 3]\n%s = ShapeOf(%x)\nResult(%s) {name=y}", "openvino").graph
    assert constant_window(graph, None) is None
    assert constant_window(graph, graph.writes["y"].source()) is None
