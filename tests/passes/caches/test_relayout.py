"""Permuted caches: operators get new axes, and Transposes move downstream or vanish."""

import numpy
import pytest
from hypothesis import given, strategies as st

from graphpass.passes.caches.relayout import inverse, move_axes, move_picks
from graphpass.runtime.backends.device import Device
from graphpass.runtime.backends.request import open_request
from graphpass.testing import assert_text, parse_model

HEAD = """%past = Parameter : f32[b, 2, p, 4]
%new = Parameter : f32[b, 2, n, 4]
%present = Concat(%past, %new) {axis=2}
"""
MOVED = """%past = Parameter : f32[b, p, 2, 4]
%new = Parameter : f32[b, 2, n, 4]
%turned = Transpose(%new) {order=[0, 2, 1, 3]}
%present = Concat(%past, %turned) {axis=1}
"""
ORDER = (0, 2, 1, 3)

#: Users of the present, before and after.
USERS = {
    "the inverse transpose vanishes": (
        "%t = Transpose(%present) {order=[0, 2, 1, 3]}\n%y = Relu(%t)",
        "%y = Relu(%present)",
    ),
    "another transpose is composed": (
        "%t = Transpose(%present) {order=[0, 1, 3, 2]}\n%y = Relu(%t)",
        "%t = Transpose(%present) {order=[0, 2, 3, 1]}\n%y = Relu(%t)",
    ),
    "elementwise operators keep the order": (
        "%r = Relu(%present)\n%h = Multiply(%r, 0.5)\n%t = Transpose(%h) {order=[0, 2, 1, 3]}\n%y = Tanh(%t)",
        "%r = Relu(%present)\n%h = Multiply(%r, 0.5)\n%y = Tanh(%h)",
    ),
    "operators along an axis get the new one": (
        "%s = Slice(%present, [0], [1]) {axes=[2]}\n%t = Transpose(%s) {order=[0, 2, 1, 3]}\n%y = Relu(%t)",
        "%s = Slice(%present, [0], [1]) {axes=[1]}\n%y = Relu(%s)",
    ),
    "others read the old order": (
        "%y = ReduceSum(%present) {axes=[3]}",
        "%t = Transpose(%present) {order=[0, 2, 1, 3]}\n%y = ReduceSum(%t) {axes=[3]}",
    ),
    "sizes are picked from the new axes": (
        "%s = ShapeOf(%present)\n%y = Gather(%s, [2]) {axis=0}",
        "%s = ShapeOf(%present)\n%y = Gather(%s, [1]) {axis=0}",
    ),
    "whole shapes are reordered": (
        "%s = ShapeOf(%present)\n%y = Add(%s, [1, 1, 1, 1])",
        "%s = ShapeOf(%present)\n%g = Gather(%s, [0, 2, 1, 3]) {axis=0}\n%y = Add(%g, [1, 1, 1, 1])",
    ),
}


def ends(text: str) -> str:
    last = text.rpartition("\n")[2].split(" = ")[0]
    return f"{text}\nResult(%present) {{name=present}}\nResult({last}) {{name=y}}"


@pytest.mark.parametrize("name", USERS)
def test_users_of_a_permuted_cache(name):
    before, after = USERS[name]
    model = parse_model(ends(HEAD + before))
    rewriter, graph = model.rewriter(), model.graph
    move_axes(rewriter, {graph.reads["past"].index: ORDER}, {graph.writes["present"].index: ORDER})
    rewriter.finish()
    model.validate()
    assert_text(model, ends(MOVED + after))


@pytest.mark.parametrize("order", [(2, 0, 1, 3), (0, 2, 3, 1), (3, 2, 1, 0)])
@pytest.mark.parametrize("name", USERS)
def test_permuted_caches_compute_the_same(name, order):
    model = parse_model(ends(HEAD + USERS[name][0]))
    moved = model.clone()
    rewriter = moved.rewriter()
    move_axes(rewriter, {moved.graph.reads["past"].index: order}, {moved.graph.writes["present"].index: order})
    rewriter.finish()
    random = numpy.random.default_rng(0)
    past, new = (random.standard_normal((1, 2, length, 4), numpy.float32) for length in (5, 3))
    before = open_request(model, Device()).infer({"past": past, "new": new})
    after = open_request(moved, Device()).infer({"past": past.transpose(order), "new": new})
    numpy.testing.assert_array_equal(after["present"], before["present"].transpose(order))
    numpy.testing.assert_allclose(after["y"], before["y"], atol=1e-6)


def test_presents_that_are_not_moved_are_transposed_back():
    model = parse_model(f"{HEAD}Result(%present) {{name=present}}")
    rewriter = model.rewriter()
    move_axes(rewriter, {model.graph.reads["past"].index: ORDER}, {})
    rewriter.finish()
    assert model.graph.producer(model.graph.writes["present"].source()).op == "Transpose"


@given(st.permutations(range(5)).map(tuple))
def test_the_inverse_undoes_a_permutation(order):
    array = numpy.empty((2, 3, 4, 5, 6))
    assert array.transpose(order).transpose(inverse(order)).shape == array.shape
    assert inverse(inverse(order)) == order


def test_picks_of_removed_dimensions_are_left():
    model = parse_model(
        "%x = Parameter : f32[a, b, c]\n%s = ShapeOf(%x)\n%first = Gather(%s, [0]) {axis=0}\n"
        "%last = Gather(%s, [2]) {axis=0}\n%all = Abs(%s)\nResult(%first) {name=first}\nResult(%last) {name=last}\n"
        "Result(%all) {name=all}"
    )
    rewriter = model.rewriter()
    (shape,) = model.graph.of_op("ShapeOf")
    left = move_picks(rewriter, shape, [2, 1, -1])
    rewriter.finish()
    assert sorted(use.node.op for use in left) == ["Abs", "Gather"]
    (first,) = [node for node in model.graph.of_op("Gather") if node.name == "first"]
    assert model.graph.constant(first.source(1)).tolist() == [2]
