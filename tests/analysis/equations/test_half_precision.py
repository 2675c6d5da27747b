"""Nodes that may compute in 16 bits: hidden states, but neither softmax, norms, angles nor what they read."""

import pytest

from graphpass.analysis.equations.half_precision import HalfRules, find_half_precision
from graphpass.testing import parse_model


def halves(text, caches=(), kept=(), lacks=()):
    graph = parse_model(f"%x = Parameter : f32[b, 4]\n%i = Parameter : i64[b]\n{text}").graph
    rules = HalfRules(
        inputs=lambda node: () if node.op in lacks else range(len(node.inputs)),
        outputs=lambda node: () if node.op in lacks else range(len(node.outputs)),
        caches=frozenset(caches),
        kept=frozenset(kept),
        largest=65504.0,
    )
    found = find_half_precision(graph, rules)
    names = {node.index: node.name for node in graph.nodes}
    return {names[index] for index in found.nodes}, {names[index] for index in found.wide}, found


TABLE = "%table = Constant : f32[9, 4]\n%w = Constant : f32[4, 4]\n%e = Gather(%table, %i) {axis=0}\n"
END = "\nResult(%y) {name=y}"


@pytest.mark.parametrize(
    ("text", "half", "wide"),
    [
        (TABLE + "%y = MatMul(%e, %w)", {"e", "y"}, set()),
        (TABLE + "%a = MatMul(%e, %w)\n%y = Softmax(%a) {axis=1}", {"e", "a"}, {"y"}),
        (TABLE + "%a = MatMul(%e, %w)\n%s = Multiply(%a, 0.5)\n%y = Softmax(%s) {axis=1}", {"e", "a"}, {"s", "y"}),
        (TABLE + "%q = Multiply(%e, %e)\n%m = ReduceMean(%q) {axes=[1], keep=true}\n%r = Sqrt(%m)\n"
         "%d = Divide(%e, %r)\n%y = MatMul(%d, %w)", {"e", "y"}, {"q", "m", "r", "d"}),
        (TABLE + "%s = Exp(%e)\n%y = MatMul(%s, %w)", {"y"}, {"e", "s"}),
        (TABLE + "%p = Convert(%i) {to=f32}\n%c = Cos(%p)\n%u = Unsqueeze(%c) {axes=[1]}\n%y = Multiply(%e, %u)",
         {"e", "y"}, set()),
        (TABLE + "%y = MatMul(%x, %w)", {"y"}, set()),
        (TABLE + "%a = Add(%e, %x)\n%y = Add(%x, %x)", set(), {"y"}),
    ],
)  # fmt: skip
def test_hidden_states_are_half_and_exact_numbers_are_not(text, half, wide):
    found = halves(text + END)
    assert found[:2] == (half, wide)


def test_sums_with_one_half_operand_are_half():
    assert halves(TABLE + "%y = Add(%e, %x)" + END)[0] == {"e", "y"}
    assert halves(TABLE + "%y = Multiply(%e, %x)" + END)[0] == {"e"}


def test_caches_become_half_unless_their_output_is_kept():
    text = TABLE + "%past = Parameter : f32[b, 4]\n%y = Concat(%past, %e) {axis=0}\nResult(%y) {name=out}"
    nodes, _, found = halves(text, caches=["past"])
    assert nodes == {"e", "y"}
    assert {value.name for value in found.values} == {"past", "e", "out"}
    assert halves(text, kept=["out"])[0] == set()


def test_operators_without_a_kernel_stay():
    assert halves(TABLE + "%y = MatMul(%e, %w)" + END, lacks=["MatMul"])[:2] == ({"e"}, {"y"})


def test_numbers_beyond_the_type_are_found():
    text = (
        TABLE + "%low = Multiply([-1e6], 1.0)\n%fine = Multiply([-1e4], 1.0)\n%a = Add(%e, %fine)\n%y = Add(%a, %low)"
    )
    _, _, found = halves(text + END)
    assert "low" in {value.name for value in found.beyond}
    assert "fine" not in {value.name for value in found.beyond}
