"""Columns of the mask that weigh hidden states."""

import pytest
from support.first_columns import hybrid_masked_by_first_columns
from support.loaded import exported, openvino_after

from graphpass.analysis.equations.token_weights import TokenWeights, Weighing, find_weighing
from graphpass.analysis.lengths.past_order import past_order


def test_weights_by_first_columns_are_found():
    weighing = find_weighing(hybrid_masked_by_first_columns())
    assert weighing.several == TokenWeights(first=True)
    assert weighing.single == TokenWeights(none=True)
    assert len(weighing.of_others) == 4


def test_own_columns_once_the_mask_is_extended():
    model = openvino_after(
        hybrid_masked_by_first_columns(), "fuse-attention,extend-mask-to-past,expose-position-ids,simplify-shapes"
    )
    assert find_weighing(model) == Weighing()
    assert past_order(model) == "any"


@pytest.mark.parametrize("place", ["granitemoehybrid/ov-stateful", "lfm2/onnx-genai", "zamba2/ov-stateful"])
def test_most_models_weigh_by_own_columns(place: str):
    assert find_weighing(exported(place)) == Weighing()
