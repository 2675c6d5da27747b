"""Cuts: values that both models compute, in any order of axes, and from which all differences follow."""

import pytest
from verify.structure.comparing import comparer_of

from graphpass.testing import parse_model
from graphpass.verify.structure.cuts import downstream, find_cuts
from graphpass.verify.structure.regions import unequal_operators

HEAD = """%input_ids = Parameter : i64[b, n]
%table = Constant : f32[64, 8]
%x = Gather(%table, %input_ids) {axis=0}
%a = Tanh(%x)
%scale = Constant : f32[8]
"""


def cuts_of(reference, candidate):
    models = [parse_model(f"{HEAD}{text}\nResult(%y) {{name=logits}}") for text in (reference, candidate)]
    comparer = comparer_of(*models, "logits", unpadded=False)
    results = [[model.graph.writes["logits"].source()] for model in models]
    sides = comparer.sides
    return find_cuts(sides, results, unequal_operators(sides, results[1]))


@pytest.mark.parametrize(
    ("reference", "candidate", "names"),
    [
        # The first difference follows from a, which both compute.
        ("%y = Sin(%a)", "%y = Cos(%a)", ["a"]),
        ("%c = Exp(%a)\n%y = Sin(%c)", "%d = Exp(%a)\n%y = Cos(%d)", ["d"]),
        ("%s = Sin(%a)\n%y = Add(%s, %x)", "%s = Cos(%a)\n%y = Add(%s, %x)", ["a", "x"]),
        # Only the reference reads x beside a, and x would not fit other numbers for a.
        ("%s = Sin(%a)\n%y = Add(%s, %x)", "%s = Cos(%a)\n%y = Add(%s, %a)", []),
        # Two values that do not follow from each other.
        ("%b = Sqrt(%x)\n%s = Sin(%a)\n%y = Add(%s, %b)", "%b = Sqrt(%x)\n%s = Cos(%a)\n%y = Add(%s, %b)", ["a", "b"]),
    ],
)
def test_cuts_are_the_last_equal_values(reference, candidate, names):
    assert sorted(cut.name for cut in cuts_of(reference, candidate)) == names


@pytest.mark.parametrize(("factor", "names"), [("past", ["k"]), ("again", [])])
def test_a_cache_that_one_model_reads_beside_a_cut(factor, names):
    """Random numbers of k would not fit those of the cache, from which it is computed."""
    state = """%past = Parameter : f32[b, past, 8]
        %present = Concat(%past, %x) {axis=1}
        Result(%present) {name=present}
        %k = Negative(%past)
        %again = Negative(%k)"""
    reference, candidate = (
        f"{state}\n%s = {kind}(%k)\n%y = Multiply(%s, %{other})" for kind, other in (("Sin", "past"), ("Cos", factor))
    )
    assert [cut.name for cut in cuts_of(reference, candidate)] == names


def test_equal_values_may_differ_in_the_order_of_axes():
    turned = "%t = Transpose(%a) {order=[2, 0, 1]}\n%s = Cos(%t)\n%y = Transpose(%s) {order=[1, 2, 0]}"
    (cut,) = cuts_of("%y = Sin(%a)", turned)
    (first,), members = cut.members
    sizes = {member.value.name: [member.sizes[axis] for axis in member.axes] for member in (first, *members)}
    # All members have the sizes of the common form, each along its own axes.
    assert sizes.keys() == {"a", "t"}
    assert [*sizes.values()] == [[*cut.sizes]] * 2


def test_operators_of_shapes_are_downstream_on_request():
    model = parse_model(f"{HEAD}%s = ShapeOf(%a)\n%b = Sqrt(%x)\n%y = Reshape(%b, %s)\nResult(%y) {{name=logits}}")
    (result,) = model.graph.of_op("Result")
    (cut,) = [node.outputs[0] for node in model.graph.nodes if node.name == "x"]

    def found(**settings):
        return {node.name for node in downstream(model.graph, [result.source()], {cut: None}, **settings)}

    assert found() - found(shapes=False) == {"a"}
    assert {"b", "s", "y"} <= found(shapes=False)
