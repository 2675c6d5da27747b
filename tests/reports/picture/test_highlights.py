"""Highlights of a model's operators and ports, from either side of a comparison."""

import pytest

from graphpass.reports.diff import diff_models
from graphpass.reports.picture.highlights import highlights_of
from graphpass.testing import parse_model

FIRST = """%x = Parameter : f32[4]
%a = Relu(%x)
%gone = Tanh(%a)
%y = Add(%gone, 1.0)
Result(%y) {name=y}"""
SECOND = """%x = Parameter : f32[4]
%a = Relu(%x)
%new = Sigmoid(%a)
%y = Add(%new, 1.0)
Result(%y) {name=y}"""


def statuses(side, first=FIRST, second=SECOND):
    difference = diff_models(parse_model(first), parse_model(second))
    operators, ports = highlights_of(difference, side)
    return {name: mark.status for name, mark in operators.items()}, {name: mark.status for name, mark in ports.items()}


@pytest.mark.parametrize(("side", "own", "other"), [(0, "gone", "new"), (1, "new", "gone")])
def test_each_side_has_its_own_operators(side, own, other):
    operators, _ = statuses(side)
    assert operators[own] == ("removed", "added")[side]
    assert other not in operators
    assert "a" not in operators


@pytest.mark.parametrize("side", [0, 1])
def test_a_renamed_operator_names_its_partner(side):
    renamed = FIRST.replace("%a", "%b")
    operators, _ = highlights_of(diff_models(parse_model(FIRST), parse_model(renamed)), side)
    names = ("a", "b")
    assert {name: (mark.status, mark.partner) for name, mark in operators.items()} == {
        names[side]: ("renamed", names[1 - side])
    }


def test_ports_are_apart_from_operators():
    wider = FIRST.replace("f32[4]", "f32[8]")
    _, ports = statuses(1, FIRST, wider)
    assert ports == {"x": "changed", "y": "changed"}


def test_one_model_has_no_highlights():
    assert highlights_of(None, 0) == ({}, {})
