"""Keys and values of attention, and the values upstream of them through layout operators."""

import pytest

from graphpass.analysis.attention.find import find_attention
from graphpass.analysis.attention.operands import attention_operands, scores_product, weighted_value
from graphpass.testing import run, tiny_model


def places(model):
    return {
        (operand.attention.node.index, operand.role): operand.places for operand in model.analysis(attention_operands)
    }


@pytest.mark.parametrize("dialect", ["onnx", "openvino"])
def test_copies_of_heads_have_no_label(dialect):
    found = places(tiny_model("llama", dialect, layers=1))
    assert [role for _, role in found] == ["key", "value"]
    for operand in found.values():
        labels = [own for _, own in operand]
        assert set(labels[0]) == {"batch", "heads", "sequence", "head_dim"}
        assert any(None in own for own in labels)
        assert operand[-1][0].shape[1] == 2
        assert operand[0][0].shape[1] == 4


def test_heads_that_are_not_shared_are_read_directly():
    for operand in places(tiny_model("gpt2", layers=1)).values():
        assert not any(None in own for _, own in operand)


def test_fused_attention_has_operands_unless_it_appends():
    fused = run(tiny_model("llama", "openvino", layers=1), "fuse-attention")
    assert [role for _, role in places(fused)] == ["key", "value"]
    assert places(run(tiny_model("llama", layers=1), "fuse-group-query-attention{context=64}")) == {}


def test_products_of_scores_and_values():
    model = tiny_model("gemma2", layers=1)
    (attention,) = model.analysis(find_attention)
    product = scores_product(model.graph, attention.node)
    assert product.op == "MatMul"
    assert product.inputs[1] != weighted_value(model.graph, attention.node)
    operands = {operand.role: operand.places[0][0] for operand in model.analysis(attention_operands)}
    assert operands == {"key": product.inputs[1], "value": weighted_value(model.graph, attention.node)}
