"""Operators that append to caches or write into them."""

import pytest

from graphpass.analysis.caches.pairs import Pair
from graphpass.analysis.caches.updates import find_updates, kept_positions, names, update_text
from graphpass.testing import parse_model

MODEL = """
%past = Parameter : f32[batch, 2, {past}, 4]
%new = Parameter : f32[batch, 2, n, 4]
%at = Parameter : i64[n]
{update}
Result(%present) {{name=present}}
"""


def updates_of(update, past="past"):
    model = parse_model(MODEL.format(update=update, past=past), "openvino")
    graph, write = model.graph, model.graph.writes["present"]
    pair = Pair(graph.parameters["past"], write.source(), graph.reads["past"], write)
    return graph, pair, find_updates(graph, pair)


@pytest.mark.parametrize(
    ("update", "past", "text"),
    [
        (
            "%present = Concat(%past, %new) {axis=2}",
            "past",
            "appended along axis 2 by Concat present, which is written back whole",
        ),
        (
            "%joined = Concat(%past, %new) {axis=2}\n%present = Slice(%joined, [-8], [2147483647]) {axes=[2]}",
            "past",
            "appended along axis 2 by Concat joined; Slice present keeps the last 8: a window of 8 in the state",
        ),
        (
            "%rest = Slice(%past, [1], [2147483647]) {axes=[2]}\n%present = Concat(%rest, %new) {axis=2}",
            "past",
            "appended along axis 2 by Concat present; Slice rest drops old positions before it: a window in the state",
        ),
        (
            "%present = ScatterUpdate(%past, %at, %new) {axis=2}",
            "16",
            "written in place along axis 2 by ScatterUpdate present, with room for 16 positions",
        ),
    ],
)
def test_updates_are_described(update, past, text):
    graph, pair, (found,) = updates_of(update, past)
    assert found.appends == ("Concat" in update)
    assert found.axes == (2,)
    assert update_text(graph, pair, found, 2) == text
    assert (kept_positions(graph, found) is None) == ("window" not in text)


@pytest.mark.parametrize(
    "update",
    [
        "%present = Add(%past, 1.0)",
        "%all = Concat(%past, %new) {axis=2}\n%present = Softmax(%all) {axis=3}",
        "%all = Concat(%past, %new) {axis=2}\n%present = Transpose(%all) {order=[0, 2, 1, 3]}",
    ],
    ids=["arithmetic", "other elements", "other axes"],
)
def test_other_operators_are_no_updates(update):
    assert updates_of(update)[2] == ()


def test_names_are_joined_once():
    graph, _, _ = updates_of("%present = Concat(%past, %new) {axis=2}")
    past, new, at, *_ = graph.of_op("Parameter")
    assert names([past]) == past.called
    assert names([past, new, at, new]) == f"{past.called}, {new.called} and {at.called}"
