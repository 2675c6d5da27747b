"""Carried tensors that attention does not read: states inside operators, windows, adapters and counters."""

from dataclasses import replace

import pytest

from graphpass.analysis.caches.classify import CacheCase
from graphpass.analysis.caches.pairs import find_pairs
from graphpass.analysis.caches.states import adapter, counter, entered_state, inside_operator, shifted_in
from graphpass.errors import UnsupportedError
from graphpass.testing import parse_model

VARIABLE = """%x = Parameter : f32[b, n, 4]
%zero = Constant : f32[1, 4, 4]
%s = ReadValue{initial} {{variable=s}} : {kind}
{text}
Assign(%t) {{variable=s}}
Result(%y) {{name=logits}}"""


def variable(text, kind="f32[b, 4, 4]", initial=""):
    model = parse_model(VARIABLE.format(text=text, kind=kind, initial=initial), "openvino")
    return model.graph, next(pair for pair in find_pairs(model) if pair.read.op == "ReadValue")


@pytest.mark.parametrize(
    ("present", "initial", "found"),
    [
        ("Convert(%s) {to=f32}", "", "each step writes it back unchanged"),
        ("Convert(%s) {to=f32}", "(%zero)", "the variable has an initial value"),
        ("Multiply(%s, 2.0)", "", "a step changes it"),
    ],
)
def test_weights_that_the_application_sets(present, initial, found):
    facts = adapter(*variable(f"%y = MatMul(%x, %s)\n%t = {present}", initial=initial))
    assert found in facts[0] if isinstance(facts, tuple) else found == facts
    assert isinstance(facts, tuple) == found.startswith("each step")


@pytest.mark.parametrize(
    ("text", "kind", "found"),
    [
        ("%t = Add(%s, [1]:i64)", "i64[1]", "one integer, to which Add"),
        ("%u = Unsqueeze(%s, 0)\n%v = Add(%u, [[1]]:i64)\n%t = Squeeze(%v, [0])", "i64[b]", "one integer per row"),
        ("%t = Add(%s, [1.0])", "f32[1]", "it is not an integer: f32"),
        ("%t = Multiply(%s, [2]:i64)", "i64[1]", "no step adds to it"),
        ("%t = Add(%s, [[1]]:i64)", "i64[b, 1]", "its rank is 2"),
    ],
)
def test_counters(text, kind, found):
    facts = counter(*variable(f"{text}\n%y = Relu(%x)", kind))
    assert found in (facts[0] if isinstance(facts, tuple) else facts)
    assert isinstance(facts, tuple) == found.startswith("one")


@pytest.mark.parametrize(
    ("text", "op"),
    [
        ("%late = Slice(%s, [1], [4], [1], [2])\n%t = Concat(%late, %new) {axis=2}", "Concat"),
        ("%t = Roll(%s, [-1], [2])", "Roll"),
        ("%half = Multiply(%s, 0.5)\n%t = Add(%half, 1.0)", None),
    ],
)
def test_windows_shift_new_columns_in(text, op):
    graph, pair = variable(f"%new = Constant : f32[1, 4, 1]\n%old = Constant : f32[1, 4, 3]\n{text}\n%y = Relu(%x)")
    found = shifted_in(graph, pair.past)
    assert (found and found.op) == op


LSTM = """%x = Parameter : f32[n, b, 4]
%h = Parameter : f32[{h}]
%c = Parameter : f32[1, b, 8]
%w = Constant : f32[1, 32, 4]
%r = Constant : f32[1, 32, 8]
{text}%y, %hn, %cn = LSTM(%x, %w, %r, _, _, {state}, %c) {{hidden_size=8}}
Result(%y) {{name=logits}}
Result(%hn) {{name=h_out}}
Result(%cn) {{name=c_out}}"""


def state_of(**form):
    model = parse_model(LSTM.format(**{"h": "1, b, 8", "text": "", "state": "%h"} | form))
    pair = next(pair for pair in find_pairs(model) if pair.read.name == "h")
    return model.graph, CacheCase(model, pair, ()).cache, pair


def test_a_state_inside_an_operator():
    cache, node = inside_operator(*state_of())
    assert (cache.kind, cache.axes.batch, node.op) == ("other", 1, "LSTM")


def test_a_state_that_is_laid_out_before_the_operator():
    given = state_of(h="b, 1, 8", text="%moved = Transpose(%h) {order=[1, 0, 2]}\n", state="%moved")
    entered = entered_state(*given)
    assert (entered.kind, entered.axes.batch) == ("other", 0)
    assert "with other operators before or after" in entered.evidence[0]


def test_a_state_of_too_few_axes_is_refused():
    graph, cache, pair = state_of()
    with pytest.raises(UnsupportedError, match=r"GP310.*has 1 axes, expected 2"):
        inside_operator(graph, replace(cache, shape=(8,)), pair)
