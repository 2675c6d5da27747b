"""Products of slices of rows sorted by expert."""

from __future__ import annotations

import pytest
from verify.structure.comparing import is_equal
from verify.structure.expert_layers import layer


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
    assert is_equal(reference, reference.clone(), "y")
    assert not is_equal(reference, candidate, "y")
