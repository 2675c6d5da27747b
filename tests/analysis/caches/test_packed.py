"""Tensors that pack keys and values, or several states: their parts, their layout, and lookalikes."""

import pytest

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.packed import Range, find_flat, flat_caches, packed_caches, packed_layout, taken
from graphpass.ir.layout import KVLayout
from graphpass.testing import parse_model


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("%y, %rest = Split(%x, [2, 4]) {axis=1}", [(0, 2, True), (2, 6, True)]),
        ("%y, %rest = Split(%x, [1, 2]) {axis=0}", []),
        ("%y = Slice(%x, [1], [4]) {axes=[1]}", [(1, 4, True)]),
        ("%y = Slice(%x, [-2], [9]) {axes=[1]}", [(4, 6, True)]),
        ("%y = Slice(%x, [0], [6], [2]) {axes=[1]}", []),
        ("%y = Slice(%x, [0], [2]) {axes=[0]}", []),
        ("%y = Gather(%x, -1) {axis=1}", [(5, 6, False)]),
        ("%y = Gather(%x, [1]) {axis=1}", []),
        ("%y = Gather(%x, %i) {axis=1}", []),
    ],
)
def test_ranges_of_an_axis(text, ranges):
    graph = parse_model(f"%x = Parameter : f32[3, 6]\n%i = Parameter : i64[]\n{text}\nResult(%y) {{name=y}}").graph
    node = graph.producer(graph.writes["y"].source())
    assert taken(graph, node, 1) == tuple(Range(*one) for one in ranges)


FLAT = """%tokens = Parameter : f32[b, 8]
%rows = Parameter : i64[b]
%past = Parameter : f32[b, 20]
%own = Gather(%past, %rows) {axis=0}
%first, %second = Split(%own, [8, 12]) {axis=1}
%a = Reshape(%first, [-1, 2, 4])
%b = Reshape(%second, [-1, 3, 4])
%c = Multiply(%a, 0.5)
%d = Multiply(%b, 0.25)
%flat_c = Reshape(%c, [-1, 8])
%flat_d = Reshape(%d, [-1, 12])
%present = Concat(%flat_c, %flat_d) {axis=1}
Result(%present) {name=present}"""


def flat_of(text):
    graph = parse_model(text).graph
    return find_flat(graph, graph.reads["past"], graph.writes["present"])


def test_states_of_a_flat_tensor():
    flat = flat_of(FLAT)
    assert (flat.axis, flat.gather.name, [node.name for node in flat.takers]) == (1, "own", ["first"])
    assert [(state.size, state.sizes, state.flattened.name) for state in flat.states] == [
        (8, (2, 4), "flat_c"),
        (12, (3, 4), "flat_d"),
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Concat(%flat_c, %flat_d)", "Concat(%flat_d, %flat_c)"),
        ("%d = Multiply(%b", "%more = Relu(%second)\n%e = Reshape(%more, [-1, 3, 4])\n%d = Multiply(%e"),
        ("%own = Gather", "%other = Relu(%past)\n%own = Gather"),
        ("%own = Gather", "%other = ShapeOf(%past)\n%own = Gather"),
        ("[-1, 3, 4]", "[3, -1, 4]"),
    ],
)
def test_other_tensors_are_not_flat(old, new):
    text = FLAT.replace(old, new)
    assert text != FLAT
    assert flat_of(f"{text}\nResult(%other) {{name=z}}" if "%other" in text else text) is None


PACKED = """%q = Parameter : f32[b, 2, n, 4]
%new = Parameter : f32[{new}]
%past = Parameter : f32[{past}]
%present = Concat(%past, %new) {{axis={axis}}}
{cut}
%turned = Transpose(%k) {{order=[0, 1, 3, 2]}}
%scores = MatMul(%q, %turned)
%weights = Softmax(%scores) {{axis=3}}
%y = MatMul(%weights, %v)
Result(%y) {{name=logits}}
Result(%present) {{name=present}}"""
SPLIT = "%k, %v = Split(%present, [4, 4]) {axis=3}"
PAIR = "%k = Gather(%present, 0) {axis=0}\n%v = Gather(%present, 1) {axis=0}"


@pytest.mark.parametrize(
    ("cut", "past", "new", "axis", "order", "packing"),
    [
        (SPLIT, "b, 2, past, 8", "b, 2, n, 8", 2, ("batch", "heads", "sequence", "content"), "content"),
        (PAIR, "2, b, 2, past, 4", "2, b, 2, n, 4", 3, ("pair", "batch", "heads", "sequence", "content"), "axis"),
    ],
)
def test_layout_of_keys_beside_values(cut, past, new, axis, order, packing):
    model = parse_model(PACKED.format(cut=cut, past=past, new=new, axis=axis))
    (cache,) = packed_caches(analyze_caches(model))
    assert packed_layout(model, cache) == KVLayout(order, packing)
    assert not flat_caches(model, analyze_caches(model))
