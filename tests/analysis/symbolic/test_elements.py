"""Elements of tensors as expressions: broadcasting, unknown parts and limits."""

import pytest

from graphpass.analysis.caches.masks import find_elements
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Elements, UnknownError, aligned, chosen
from graphpass.analysis.symbolic.expressions import ONE, ZERO, number
from graphpass.testing import parse_model

LENGTH = ex.length("length", 1)
INDEX = ex.index("i", LENGTH)
FREE = ex.length("free", 1)
ROW, COLUMN = ex.index("row", number(5)), ex.index("column", number(4))

MODEL = """
%x = Parameter : f32[5, 4]
%row = Parameter : f32[1, 4]
%scale = Parameter : f32[4]
%sum = Add(%x, %row)
%y = Multiply(%sum, %scale)
Result(%y) {name=y}
"""


def test_operands_are_broadcast():
    model = parse_model(MODEL)
    elements = model.analysis(find_elements)
    x, row = (ex.read(name, at, "real") for name, at in (("x", (ROW, COLUMN)), ("row", (ZERO, COLUMN))))
    scale = ex.read("scale", (COLUMN,), "real")
    assert elements.of(model.graph.writes["y"].source(), (ROW, COLUMN)) is ex.multiply(ex.add(x, row), scale)


@pytest.mark.parametrize(
    ("place", "size", "read"),
    [(INDEX, ONE, ZERO), (INDEX, LENGTH, INDEX), (INDEX, FREE, ex.choose(ex.equal(FREE, ONE), ZERO, INDEX))],
)
def test_axes_of_size_1_are_read_at_0(place, size, read):
    assert aligned(place, size) is read


@pytest.mark.parametrize(
    ("content", "index", "element"),
    [
        ((number(7),), (), number(7)),
        ((number(7), number(7)), (INDEX,), number(7)),
        ((number(1), number(4), number(9)), (number(2),), number(9)),
        ((number(2), number(5), number(8)), (INDEX,), ex.add(number(2), ex.multiply(number(3), INDEX))),
        ((number(2), number(9)), (INDEX,), ex.add(number(2), ex.multiply(number(7), INDEX))),
    ],
)
def test_elements_of_a_vector_are_a_sequence_if_they_can(content, index, element):
    assert chosen(content, index) is element


@pytest.mark.parametrize("place", [-1, 3])
def test_indices_outside_a_vector_are_unknown(place):
    with pytest.raises(UnknownError, match=f"index {place} is outside its 3 elements"):
        chosen((number(1), number(4), number(9)), (number(place),))


def test_elements_of_another_vector_are_choices():
    found = chosen((number(1), number(4), number(9)), (INDEX,))
    assert [ex.substitute(found, {INDEX: number(at)}).as_number for at in range(3)] == [1, 4, 9]


CHAIN = "%x = Parameter : f32[4]\n%y0 = Add(%x, 1.0)\n" + "".join(
    f"%y{step} = Multiply(%y{step - 1}, %y{step - 1})\n" for step in range(1, 9)
)


def test_an_element_of_too_many_others_is_opaque(monkeypatch):
    model = parse_model(f"{CHAIN}Result(%y8) {{name=y}}")
    value = model.graph.writes["y"].source()
    elements = model.analysis(find_elements)
    monkeypatch.setattr(Elements, "limit", 4)
    found = elements.of(value, (COLUMN,))
    assert found.op == "opaque"
    assert elements.misses[found].reason == "it depends on more than 4 elements"
    assert elements.of(value, (COLUMN,)) is found


def test_operators_without_a_rule_are_opaque_at_their_node():
    text = "%x = Parameter : f32[5, 4]\n%rounded = Round(%x)\n%y = Add(%rounded, %x)\nResult(%y) {name=y}"
    model = parse_model(text)
    elements = model.analysis(find_elements)
    found = elements.of(model.graph.writes["y"].source(), (ROW, COLUMN))
    (part,) = [part for part in ex.walk(found) if part in elements.misses]
    assert elements.misses[part].node.op == "Round"
    assert "is not defined symbolically" in elements.misses[part].reason


def test_a_cut_reads_its_source_as_an_input():
    model = parse_model("%x = Parameter : f32[4]\n%a = Tanh(%x)\n%y = Add(%a, %x)\nResult(%y) {name=y}")
    value, (inner,) = model.graph.writes["y"].source(), model.graph.of_op("Tanh")
    source = inner.outputs[0]
    cut = model.analysis(find_elements).cut(source, {value.node})
    expected = ex.add(ex.read(("cut", source.node, 0), (COLUMN,), "real"), ex.read("x", (COLUMN,), "real"))
    assert cut.of(value, (COLUMN,)) is expected
