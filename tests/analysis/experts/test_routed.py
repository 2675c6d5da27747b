"""Layers that compute each expert on its own tokens: their parts, and the reason that a layer does not match."""

import pytest
from support.expert_graphs import changed, experts

from graphpass.analysis.experts.routed import find_sorted_pieces, routed_layers
from graphpass.ir.miss import Miss


def layer_of(form, old="", new=""):
    (layer,) = routed_layers(changed(old, new, form, count=2, chosen=2).graph).values()
    return layer


@pytest.mark.parametrize("form", ["separate", "sorted"])
def test_each_expert_has_its_own_weights(form):
    layer = layer_of(form)
    assert layer.count == len(layer.experts) == 2
    assert (layer.rows.name, layer.chosen.name, layer.weights.name) == ("rows", "TopK_3/output_1", "Div_5")
    assert len({product.weight.name for expert in layer.experts for product in expert.products}) == 6


@pytest.mark.parametrize(
    ("form", "old", "new", "reason"),
    [
        ("separate", "(%Transpose_7, 1)", "(%Transpose_7, 0)", "experts [0, 0] of 2 are found"),
        ("separate", "(%TopK_3.1, 2, ", "(%TopK_3.1, 3, ", "experts [0, 1] of 3 are found"),
        ("separate", "(%Squeeze_15, 2)", "(%Squeeze_15, 1)", "one weight for each selected expert of a token"),
        ("separate", "(%ConstantOfShape_10, %Expand", "(%rows, %Expand", "not added one at a time, starting from 0"),
        ("separate", "(%rows, %Squeeze_35)", "(%rows, %Squeeze_34)", "expected a Gather of the rows"),
        ("separate", "%Sigmoid_39 = Sigmoid", "%Sigmoid_39 = Tanh", "differ in structure"),
        (
            "sorted",
            "%Gather_19 = Gather(%ReduceSum_12, [1])",
            "%Gather_19 = Gather(%ReduceSum_12, [0])",
            "expected a slice of the rows of expert 1",
        ),
        ("sorted", "Divide(%TopK_15.1, 2)", "Divide(%TopK_15.1, 4)", "indices divided by k"),
        ("sorted", "(%ConstantOfShape_48, ", "(%rows, ", "a sum of all rows, starting from 0"),
    ],
)
def test_other_layers_miss(form, old, new, reason):
    layer = layer_of(form, old, new)
    assert isinstance(layer, Miss)
    assert reason in layer.reason


def test_slices_of_sorted_rows_state_their_expert():
    model = experts("sorted", count=3, chosen=1)
    pieces = find_sorted_pieces(model)
    assert {model.graph.nodes[join].op for join in pieces.joins} == {"Concat"}
    assert sorted(expert for _, expert in pieces.cuts.values()) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert not find_sorted_pieces(experts("separate")).cuts
