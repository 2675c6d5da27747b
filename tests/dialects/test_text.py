"""Models of either dialect from one text."""

import pytest
from support.models import export

import graphpass
from graphpass.errors import UsageError
from graphpass.ir.text.canonical import canonical
from graphpass.ir.text.parser import parse_text
from graphpass.ir.text.printer import statements_of, text_of
from graphpass.testing import parse_model
from graphpass.verify import compare

GRAPH = """
%x = Parameter : f32[batch, 8]
%w = Constant : f32[8, 6]
%product = MatMul(%x, %w) : f32[batch, 6]
// halves
%left, %right = VariadicSplit(%product, [2, 4]) {axis=1} : f32[batch, 2], f32[batch, 4]
%total = ReduceSum(%right) {axes=[1], keep=true}
%part = Slice(%left, [0], [1]) {axes=[1]}
%swish = Swish(%part) : f32[batch, 1]
%wide = Convert(%swish) {to=f16} : f16[batch, 1]
%sum = Add(%wide, 0.5:f16) : f16[batch, 1]
Result(%sum) {name=y}
Result(%total) {name=total}
"""

dialects = pytest.mark.parametrize("dialect", ["onnx", "openvino"])


def plain(statements):
    return list(map(str, canonical(statements)))


@dialects
def test_one_text_makes_a_model_of_either_dialect(dialect):
    model = parse_model(GRAPH, dialect)
    assert [(port.name, port.element_type) for port in model.outputs] == [("y", "f16"), ("total", "f32")]
    assert plain(statements_of(model.graph)) == plain(parse_text(GRAPH))


def test_a_model_made_of_text_runs():
    text = text_of(graphpass.load(export("llama", "onnx")).graph)
    assert compare(parse_model(text), parse_model(text), steps=1).passed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("%y = Relu(%x", "line 1 of the graph, '%y = Relu(%x': expected ,, got the end"),
        ("%y = Relu(1.0:f7)", "f7 is not an element type"),
        ("%y = Relu(%x)", "%x has no statement"),
        ("%y = If(true)", "the text form has no bodies"),
        ("%x = Parameter : f32[4]\n%y = Relu(%x) : f16[4]\nResult(%y) {name=y}", "expected type f16[4], got f32[4]"),
        ("%y = Relu(1.0) ; %z", "unexpected character ';'"),
        ("%y = Constant : string[2]\nResult(%y) {name=y}", "elements of type string cannot be random"),
    ],
)
@dialects
def test_a_faulty_text_is_refused_with_its_line(text, words, dialect):
    with pytest.raises(UsageError, match="GP270") as raised:
        parse_model(text, dialect)
    assert words in str(raised.value)


@dialects
def test_a_constant_may_have_no_elements(dialect):
    text = """%x = Parameter : f32[2, 4]
    %none = Constant : f32[0, 4]
    %y = Concat(%none, %x) {axis=0} : f32[2, 4]
    Result(%y) {name=y}"""
    (join,) = parse_model(text, dialect).graph.of_op("Concat")
    assert join.inputs[0].shape == (0, 4)


@pytest.mark.parametrize("kind", ["u2", "u4", "i4"])
@dialects
def test_constants_of_few_bits_get_elements(kind, dialect):
    graph = parse_model(f"%y = Constant : {kind}[2, 4]\nResult(%y) {{name=y}}", dialect).graph
    assert (graph.writes["y"].source().element_type, graph.writes["y"].source().shape) == (kind, (2, 4))
