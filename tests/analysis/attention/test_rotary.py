"""Positions that angles and tables read: sums of a Range and the past."""

import pytest

from graphpass.analysis.attention.rotary import moved_positions, positions_of_angles
from graphpass.testing import parse_model

MODEL = """%x = Parameter : f32[b, n, 4]
%past = Parameter : i64[]
%n = Parameter : i64[]
%range = Range(0, %n, 1)
%moved = Add(%range, %past)
{text}
Result(%y) {{name=y}}"""
ANGLES = "%real = Convert({0}) {{to=f32}}\n%angles = Multiply(%real, 0.5)\n%y = {1}(%angles)"
TABLE = "%table = Constant : f32[9, 4]\n%y = Gather(%table, {0}, 0)"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (ANGLES.format("%moved", "Sin"), "moved"),
        (ANGLES.format("%moved", "Cos"), "moved"),
        (ANGLES.format("%moved", "Exp"), None),
        (ANGLES.format("%range", "Sin"), None),
        (TABLE.format("%moved"), "moved"),
        (TABLE.format("%range"), None),
        (TABLE.format("%past"), None),
        ("%table = Tanh(%x)\n%y = Gather(%table, %moved, 0)", None),
    ],
)
def test_positions_after_the_past(text, found):
    node = moved_positions(parse_model(MODEL.format(text=text), "openvino").graph)
    assert (node and node.name) == found


def test_ranges_end_the_search():
    graph = parse_model(MODEL.format(text=ANGLES.format("%moved", "Sin")), "openvino").graph
    names = {node.name for node in positions_of_angles(graph)}
    assert {"angles", "real", "moved", "range", "past"} <= names
    assert "n" not in names
