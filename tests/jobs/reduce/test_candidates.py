"""Smaller variants of a graph: what each keeps, and the order in which they are tried."""

import numpy
import pytest

from graphpass.ir.text.parser import parse_text
from graphpass.jobs.reduce import candidates

TEXT = """%x = Parameter : f32[b, 8]
%s = ReadValue {variable=s} : f32[b, 8]
%w = Constant : f32[8, 8]
%a = Relu(%x) : f32[b, 8]
%p = MatMul(%a, %w) : f32[b, 8]
%c = Add(%p, [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0])
%d = Add(%p, %s) : f32[b, 8]
Result(%c) {name=y}
Assign(%d) {variable=s}"""
GRAPH = parse_text(TEXT)
VALUES = {name: numpy.zeros([3, 8], numpy.float32) for name in ("x", "s", "a", "p", "c", "d")}


def names(statements):
    return " ".join(statement.results[0] if statement.results else statement.kind for statement in statements)


def test_only_statements_upstream_of_ends_live():
    assert names(candidates.live(GRAPH[:-1])) == "x w a p c Result"
    assert names(candidates.live(GRAPH[:-2])) == ""
    assert [GRAPH[index].results[0] for index in candidates.computing_operators(GRAPH)] == ["a", "p", "c", "d"]


@pytest.mark.parametrize(
    ("variant", "left"),
    [
        (candidates.ending_at(GRAPH, 4), "x w a p Result"),
        (candidates.starting_at(GRAPH, 4, VALUES), "s w a p c d Result Assign"),
        (candidates.cut(GRAPH, {4}, VALUES), "s p c d Result Assign"),
        (candidates.cut(GRAPH, {4}, {}), "x s w a p c d Result Assign"),
        (candidates.bypass(GRAPH, "p", "a"), "x s a c d Result Assign"),
        (candidates.without_ends(GRAPH, {7}, VALUES), "x s w a p d Assign"),
    ],
)
def test_statements_of_a_variant(variant, left):
    assert names(variant) == left


def test_a_value_that_becomes_an_input_keeps_its_type():
    assert str(candidates.cut(GRAPH, {4}, VALUES)[1]) == "%p = Parameter : f32[b, 8]"
    assert str(candidates.cut(GRAPH, {5}, VALUES)[-3]) == "%d = Add(%p, %s) : f32[b, 8]"


def test_a_variable_without_its_assign_becomes_an_input():
    text = TEXT.replace("Result(%c)", "Result(%d)")
    variant = candidates.without_ends(parse_text(text), {8}, VALUES)
    assert [str(statement) for statement in variant if statement.results == ("s",)] == ["%s = Parameter : f32[b, 8]"]


def test_bypasses_that_remove_most_come_first():
    pairs = candidates.bypasses(GRAPH, VALUES)
    assert pairs[0] == ("d", "x")
    assert ("p", "x") in pairs
    assert ("p", "w") in pairs
    assert ("a", "w") not in pairs
    constant = parse_text("%v = Constant : f32[2]\n%w = Constant : f32[2]\n%y = Add(%v, %w) : f32[2]")
    assert candidates.bypasses(constant, {}) == [("y", "v"), ("y", "w")]


def test_long_constants_become_noise():
    assert candidates.literals(GRAPH) == ["c.c1"]
    noisy = candidates.with_noise(GRAPH, ["c.c1"])
    assert "%c.c1 = Constant : f32[9]" in map(str, noisy)
    assert candidates.with_noise(GRAPH, ["other"]) == GRAPH


def test_multiples_of_a_size_are_resized():
    text = "%x = Parameter : f32[b, 8, 12]\n%y = Reshape(%x, [0, 24, 5]) : f32[b, 24]\nResult(%y) {name=y}"
    statements = parse_text(text)
    assert candidates.sizes(statements) == [12, 8]
    assert [str(statement) for statement in candidates.resized(statements, 8, 2)][:2] == [
        "%x = Parameter : f32[b, 2, 12]",
        "%y = Reshape(%x, [0, 6, 5])",
    ]


def test_inputs_are_sliced_to_declared_sizes_and_sizes_are_named():
    arrays = {"x": numpy.arange(20).reshape(2, 10), "gone": numpy.zeros(1)}
    sliced = candidates.sliced(arrays, GRAPH)
    assert sliced.keys() == {"x"}
    assert sliced["x"].tolist() == arrays["x"][:, :8].tolist()
    named, sizes = candidates.with_named_sizes(GRAPH, sliced)
    assert (str(named[0]), sizes) == ("%x = Parameter : f32[n2, 8]", {"n2": 2})
