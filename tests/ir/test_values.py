"""Classes of values: activations, weights, sizes."""

import pytest

from graphpass.ir.values import (
    fixed_size,
    head_of,
    is_activation,
    is_compressed,
    is_copy,
    is_value_preserving,
    is_wider,
    known_elements,
    weight_bytes,
)
from graphpass.testing import parse_model

MODEL = """
%x = Parameter : f32[n, 4]
%stored = Constant : u8[4, 6]
%wide = Convert(%stored) {to=f32}
%shifted = Subtract(%wide, 8.0)
%weight = Multiply(%shifted, 0.25)
%logits = MatMul(%x, %weight)
%capped = Tanh(%logits)
Result(%capped) {name=logits}
"""


def model_of(old="", new=""):
    return parse_model(MODEL.replace(old, new), "openvino")


def value(graph, name):
    return next(output for node in graph.nodes for output in node.outputs if output.name == name)


@pytest.mark.parametrize("name", ["stored", "wide", "shifted", "weight", "x", "logits"])
def test_dequantized_weights_are_not_activations(name):
    graph = model_of().graph
    assert is_activation(graph, value(graph, name)) == (name in {"x", "logits"})
    assert not is_activation(graph, None)


def test_a_weight_times_an_activation_is_one():
    text = MODEL.replace("%stored =", "%gate = Parameter : f32[6]\n%stored =").replace(
        "%shifted, 0.25", "%shifted, %gate"
    )
    graph = parse_model(text, "openvino").graph
    assert is_activation(graph, value(graph, "weight"))


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("", "", "MatMul"),
        ("Tanh(%logits)", "Multiply(%logits, 0.5)", "MatMul"),
        ("Tanh(%logits)", "Add(%logits, %logits)", None),
        ("Tanh(%logits)", "ReduceSum(%logits) {axes=[0]}", None),
        ("MatMul(%x, %weight)", "MatMul(%x, %x) {transpose_b=true}", None),
    ],
)
def test_the_head_is_a_product_with_weights_per_position(old, new, found):
    graph = model_of(old, new).graph
    head = head_of(graph, graph.writes["logits"])
    assert (head.op if head is not None else None) == found


def test_weights_are_counted_in_bytes():
    graph = model_of().graph
    assert weight_bytes(graph) == 24 + 2 * 4
    assert is_compressed(graph)
    assert not is_compressed(model_of("u8[4, 6]", "f16[4, 6]").graph)


def test_sizes_that_are_not_fixed():
    x = model_of().graph.parameters["x"]
    assert [fixed_size(x, axis) for axis in (0, 1, -1, 2, -3)] == [None, 4, 4, None, None]
    assert known_elements(x) == 4
    assert fixed_size(None, 0) is None


@pytest.mark.parametrize(
    ("pair", "wider"),
    [(("f32", "f16"), True), (("f16", "bf16"), False), (("f32", "i8"), False), (("i64", "f32"), False)],
)
def test_wider_types_are_floating_point(pair, wider):
    assert is_wider(*pair) is wider


def test_a_concat_of_one_tensor_is_a_copy():
    text = "%x = Parameter : i64[n]\n%y = Concat(%x) {axis=0}\n%z = Concat(%y, %x) {axis=0}\nResult(%z) {name=z}\n"
    one, two = parse_model(text, "onnx").graph.of_op("Concat")
    assert is_copy(one)
    assert is_value_preserving(one)
    assert not is_copy(two)
