"""Layers of experts that one operator can compute: their parts in four forms, and the reasons against others."""

import pytest
from support.expert_graphs import changed, experts, quantized

from graphpass.analysis.experts.mixtures import find_mixtures, why_exact_stays
from graphpass.ir.miss import Miss


@pytest.mark.parametrize("form", ["separate", "sorted", "dense", "gathered"])
def test_each_form_has_its_tokens_and_products(form):
    (mixture,) = find_mixtures(experts(form, columns="linear part first", kind="clamped")).values()
    assert (mixture.tokens.name, mixture.result.name) == ("x", "total")
    assert mixture.routing.is_normalized
    assert mixture.activation.kind == "swiglu"
    stored = 4 if form in {"separate", "sorted"} else 1
    # The gate is the second half of the joined product.
    assert [[product.columns for product in each] for each in mixture.first] == [[(6, 12, 1), (0, 6, 1)]] * stored
    assert [product.columns for (product,) in mixture.last] == [(0, 8, 1)] * stored


COPIES = "%Unsqueeze_8 = Unsqueeze(%rows) {axes=[1]}\n%Expand_9 = Broadcast(%Unsqueeze_8, [1, 2, 1])"
MOVED = "%Unsqueeze_8 = Unsqueeze(%rows) {axes=[0]}\n%Expand_9 = Broadcast(%Unsqueeze_8, [2, 1, 1])"


@pytest.mark.parametrize(
    ("form", "old", "new", "reason"),
    [
        ("separate", "reduction=add", "reduction=max", "the result of an expert is not added to a sum"),
        ("dense", "(%Mul_19) {axes=[0]}", "(%Mul_19) {axes=[0], keep=true}", "a sum over the axis of experts"),
        ("dense", "(%ConstantOfShape_7, ", "(%logits, ", "0 for experts that are not selected"),
        ("dense", "(%MatMul_18, %Unsq", "(%Expand_12, %Unsq", "not a product with weights"),
        ("gathered", COPIES, MOVED, "expected a copy of each token for each of its experts"),
        ("gathered", "Softmax(%logits) {axis=1}", "Tanh(%logits)", "may be negative"),
    ],
)
def test_other_layers_stay(form, old, new, reason):
    (layer,) = find_mixtures(changed(old, new, form, count=2, chosen=2)).values()
    assert isinstance(layer, Miss)
    assert reason in layer.reason


def test_a_sum_of_gathered_rows_that_no_router_selected_is_no_layer():
    assert not find_mixtures(changed("Reshape(%TopK_3.1, [-1])", "Gather([1], [0, 0]) {axis=0}", "gathered", count=2))


@pytest.mark.parametrize(("stored", "stays"), [("nbits8", True), ("nbits4", False), ("", False)])
def test_rounding_to_8_bits_is_a_reason_against_qmoe(stored, stays):
    model = experts("separate", hidden=32, inner=32)
    model = quantized(model, stored, 16, zeros=False) if stored else model
    (mixture,) = find_mixtures(model).values()
    assert (why_exact_stays(model.graph, mixture) is not None) == stays
