"""Graphs as text, whole or in part."""

import re

import pytest
from support.models import export

import graphpass
from graphpass.ir.text.canonical import canonical
from graphpass.ir.text.parser import parse_text
from graphpass.ir.text.printer import statements_of, text_of
from graphpass.testing import parse_model

GRAPH = """
%x = Parameter : f32[batch, 8]
%w = Constant : f32[8, 6]
%/model/layers.3/attn/MatMul = MatMul(%x, %w) : f32[batch, 6]
%left, %right = VariadicSplit(%/model/layers.3/attn/MatMul, [2, 4]) {axis=1}
%sum = Add(%right, 0.5)
Result(%sum) {name=y}
"""


@pytest.mark.parametrize("variant", ["onnx", "onnx-genai", "ov-stateful"])
@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen3", "lfm2"])
def test_the_text_of_an_export_makes_the_same_graph(name, variant):
    try:
        model = graphpass.load(export(name, variant))
    except AssertionError:
        pytest.skip("there is no such export")
    statements = statements_of(model.graph)
    made = parse_model("\n".join(map(str, statements)), model.dialect)
    assert list(map(str, canonical(statements_of(made.graph)))) == list(map(str, canonical(statements)))


def test_values_from_outside_of_an_excerpt_are_parameters():
    graph = parse_model(GRAPH).graph
    text = text_of(graph, [node for node in graph.nodes if node.op == "Add"])
    assert text.splitlines()[0].startswith("// made by VariadicSplit ")
    assert [statement.kind for statement in parse_text(text)] == ["Parameter", "Add"]


def test_small_constants_are_operands_and_names_are_short():
    graph = parse_model(GRAPH).graph
    _, weight, product, split, total, _ = text_of(graph).splitlines()
    assert re.fullmatch(r"%w = Constant #[0-9a-f]{6} : f32\[8, 6\]", weight)
    assert product == "%L3.attn.MatMul = MatMul(%x, %w) : f32[batch, 6]"
    assert split.endswith("VariadicSplit(%L3.attn.MatMul, [2, 4]) {axis=1} : f32[batch, 2], f32[batch, 4]")
    assert "Add(" in total
    assert ", 0.5) : f32[batch, 4]" in total
    assert "Constant" not in text_of(graph).replace("%w = Constant", "")
    kinds = [statement.kind for statement in statements_of(graph, inline=0)]
    assert kinds.count("Constant") == 3


def test_remarks_are_comments():
    graph = parse_model(GRAPH).graph
    (add,) = graph.of_op("Add")
    assert "// here\n%sum = Add(" in text_of(graph, remarks={add.index: ("here",)})
