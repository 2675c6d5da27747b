"""Features of images in the form that NPUW replaces."""

import pytest

from graphpass.targets.npu.rules import data_dependent
from graphpass.targets.npu.visual import adds_scattered, visual_places
from graphpass.testing import parse_model

MODEL = """%deepstack_visual_embeds = Parameter : f32[2, n, 8]
%visual_pos_masks = Parameter : boolean[batch, length]
%hidden = Parameter : f32[batch, length, 8]
%axes = NonZero(%visual_pos_masks) {output_type=i64}
%places = Transpose(%axes) {order=[1, 0]}
%level = Gather(%deepstack_visual_embeds, 1) {axis=0}
%rows = GatherND(%hidden, %places) {batch_dims=0, opset=8}
%changed = Add(%rows, %level)
%out = ScatterNDUpdate(%hidden, %places, %changed)
Result(%out) {name=out}
"""


def test_places_of_scattered_features_have_no_static_size_but_are_dropped():
    graph = parse_model(MODEL, "openvino").graph
    assert adds_scattered(graph)
    assert [graph.nodes[index].op for index in sorted(visual_places(graph))] == ["NonZero", "Transpose"]
    assert data_dependent(graph) is None


@pytest.mark.parametrize(
    ("old", "new", "node"),
    [
        ("Result(%out)", "%more = Gather(%hidden, %axes) {axis=0}\nResult(%more) {name=more}\nResult(%out)", "NonZero"),
        ("Add(%rows, %level)", "Multiply(%rows, %level)", "NonZero"),
        ("Gather(%deepstack_visual_embeds, 1)", "Gather(%hidden, 1)", "NonZero"),
    ],
)
def test_other_uses_stay(old, new, node):
    graph = parse_model(MODEL.replace(old, new), "openvino").graph
    found = data_dependent(graph)
    assert found is not None
    assert found.op == node


def test_a_level_that_is_added_otherwise():
    more = "%other = Gather(%deepstack_visual_embeds, 0) {axis=0}\n%sum = Add(%out, %other)\nResult(%sum) {name=sum}\n"
    assert not adds_scattered(parse_model(MODEL + more, "openvino").graph)
