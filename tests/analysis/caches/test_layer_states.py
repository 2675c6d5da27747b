"""The residual stream after each layer."""

import pytest

from graphpass.analysis.caches.layer_states import find_layer_states
from graphpass.testing import Family, parse_model, tiny_model


@pytest.mark.parametrize(
    "family", [Family(), Family(parallel=True), Family(convolution=True), Family(norm="layer", positions="learned")]
)
def test_each_layer_ends_in_a_sum(family):
    model = tiny_model(family, layers=3)
    states = find_layer_states(model)
    assert len(states) == 3
    for (value,) in states:
        assert model.graph.producer(value).op == "Add"
        assert (value.rank, value.shape[-1]) == (3, 32)
    nodes = [value.node for (value,) in states]
    assert nodes == sorted(nodes)


def test_a_model_without_caches_has_no_layers():
    text = "%input_ids = Parameter : i64[b, n]\n%w = Constant : f32[9, 8]\n%x = Gather(%w, %input_ids) {axis=0}\n"
    assert "no caches are between" in find_layer_states(parse_model(f"{text}Result(%x) {{name=logits}}"))
    assert "no input called" in find_layer_states(
        parse_model("%x = Parameter : f32[b, n, 4]\nResult(%x) {name=logits}")
    )
