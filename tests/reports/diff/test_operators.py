"""Operators of two models, paired by name or by structure."""

import numpy
import openvino
import pytest
from support.models import export

from graphpass.io import load
from graphpass.reports.diff import diff_models
from graphpass.reports.diff.operators import attributes_of, compare_operators, constant_in_words, operators_of
from graphpass.testing import parse_model


def test_generated_names_are_paired_by_structure():
    before, after = load(export("llama", "ov-stateful")), load(export("llama", "ov-stateful"))
    for number, op in enumerate(after.ov_model.get_ordered_ops()):
        if op.get_friendly_name().startswith(("Gather_", "Concat_", "ShapeOf_", "ReadValue_", "Assign_")):
            op.set_friendly_name(f"{op.get_type_name()}_{90_000 + number}")
    found = diff_models(before, after)
    assert not found.same
    assert found.kinds == ()
    assert found.operators
    assert all(set(change.before) == set(change.after) == {"name"} for change in found.operators)


def test_an_operator_with_another_operand():
    after = load(export("llama", "ov-stateful"))
    add = next(op for op in after.ov_model.get_ordered_ops() if op.get_type_name() == "Add")
    add.input(1).replace_source_output(openvino.opset13.constant(numpy.float32(2)).output(0))
    found = diff_models(load(export("llama", "ov-stateful")), after)
    assert ("reads 1", "f32 [] = 2.0") in [pair for change in found.operators for pair in change.after.items()]


def test_an_output_of_something_else():
    after = load(export("llama", "ov-stateful"))
    result = after.ov_model.get_results()[0]
    source = result.input_value(0)
    negated = openvino.opset13.negative(openvino.opset13.negative(source))
    names = source.get_names()
    source.get_tensor().set_names(set())
    negated.output(0).get_tensor().set_names(names)
    result.input(0).replace_source_output(negated.output(0))
    found = diff_models(load(export("llama", "ov-stateful")), after)
    assert any(change.name.startswith("output ") for change in found.operators)
    assert ("Negative", 0, 2) in found.kinds


TEXT = """%x = Parameter : f32[n, 4]
%a = Add(%x, 1.5) : f32[n, 4]
%b = Softmax(%a) {axis=1} : f32[n, 4]
Result(%b) {name=y}"""


@pytest.mark.parametrize("dialect", ["onnx", "openvino"])
def test_constants_and_attributes_are_text(dialect):
    model = parse_model(TEXT, dialect)
    operators = operators_of(model)
    assert [node.op for node in operators.values()] == ["Add", "Softmax", "Result"]
    assert attributes_of(operators["b"], model) == {"axis": "1"}
    (constant,) = model.graph.of_op("Constant")
    assert constant_in_words(constant, model.graph) == "f32 [] = 1.5"


def test_weights_and_longer_constants_are_not_printed():
    lines = ["%x = Parameter : f32[n, 4]", "%w = Constant : f32[4, 5]", "%v = Constant : f32[64, 64]"]
    lines += ["%y = MatMul(%x, %w)", "%s = ReduceSum(%v) {axes=[0]}", "Result(%y) {name=y}", "Result(%s) {name=s}"]
    graph = parse_model("\n".join(lines)).graph
    words = {node.name: constant_in_words(node, graph) for node in graph.of_op("Constant") if node.name in "wv"}
    assert words["w"].startswith("f32 [4, 5] with digest ")
    assert words["v"] is None


@pytest.mark.parametrize(
    ("after", "changes"),
    [
        (TEXT, []),
        (TEXT.replace("1.5", "2.5"), [("a", {"reads 1": "f32 [] = 2.5"})]),
        (TEXT.replace("%b", "%c"), [("b", {"name": "c"})]),
        (TEXT.replace("Softmax", "LogSoftmax"), [("b", {"kind": "LogSoftmax"})]),
    ],
)
def test_operators_that_differ(after, changes):
    found = compare_operators(parse_model(TEXT), parse_model(after))
    operators = [change for change in found if not change.name.startswith("output ")]
    assert [(change.name, dict(change.after)) for change in operators] == changes
