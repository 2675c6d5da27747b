"""MoE is the layer of experts that it was made of, however its tokens were sent to experts, and no other."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from onnx import helper, numpy_helper
from support.expert_graphs import experts
from support.fused_experts import fused

from graphpass.ir.model import Model
from graphpass.verify.structure.proof import Comparer
from graphpass.verify.structure.weights import WeightDigests

#: Weights of fewer elements are tables, which are written out.
SIZES = {"hidden": 64, "inner": 48}


def layer(form: str, router: str, columns: str = "halves", **sizes: Any) -> Model:
    """Return a layer whose result has a size of its own: one like the tokens would count as their state."""
    model = experts(form, router, columns, **(SIZES | sizes))
    graph = model.proto.graph
    graph.node[-1].output[0] = "whole"
    bounds = {"first": 0, "end": 32, "axis": 2}
    graph.initializer.extend(numpy_helper.from_array(numpy.int64([number]), name) for name, number in bounds.items())
    graph.node.append(helper.make_node("Slice", ["whole", *bounds], ["y"], "part"))
    graph.output[0].type.tensor_type.shape.dim[2].dim_value = 32
    model.mark_edited()
    return model


def is_equal(reference: Model, candidate: Model) -> bool:
    comparer = Comparer((reference, candidate), WeightDigests((reference, candidate)), ["y"], unpadded=False)
    assert [result.name for result in comparer.results] == ["y"]
    return not comparer.unequal()


@pytest.mark.parametrize("router", ["softmax first", "softmax last", "plain"])
@pytest.mark.parametrize("form", ["dense", "gathered", "separate", "sorted"])
def test_experts_are_equal_to_their_fused_operator(form, router):
    model = layer(form, router)
    assert is_equal(model, fused(model)[0])


@pytest.mark.parametrize(
    "other",
    [
        layer("gathered", "plain"),
        layer("gathered", "softmax first", "linear part first"),
        layer("gathered", "softmax first", chosen=1),
        layer("gathered", "softmax first", "pairs"),
    ],
    ids=["weights that are not normalized", "parts exchanged", "one expert for each token", "parts in pairs"],
)
def test_another_layer_is_not_equal(other):
    assert not is_equal(layer("gathered", "softmax first"), fused(other)[0])


@pytest.mark.parametrize("fault", ["products exchanged", "a slice of other rows", "another reader of a slice"])
def test_sorted_experts_of_other_rows_are_not_equal(fault):
    reference, candidate = layer("sorted", "softmax first"), layer("sorted", "softmax first")
    graph = candidate.proto.graph
    joined = next(node for node in graph.node if node.op_type == "Concat" and len(node.input) == 4)
    makers = {name: node for node in graph.node for name in node.output}
    slices = [makers[makers[name].input[0]] for name in joined.input]
    if fault == "products exchanged":
        joined.input[1], joined.input[2] = joined.input[2], joined.input[1]
    elif fault == "a slice of other rows":
        slices[1].input[2] = slices[2].input[2]
    else:
        makers[joined.input[1]].input[0] = slices[2].output[0]
    candidate.mark_edited()
    assert is_equal(reference, reference.clone())
    assert not is_equal(reference, candidate)
