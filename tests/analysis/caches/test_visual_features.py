"""Sums that gather features of images for each token."""

import pytest

from graphpass.analysis.caches.visual_features import added_features
from graphpass.testing import parse_model

MODEL = """%deepstack_visual_embeds = Parameter : f32[2, n, 8]
%visual_pos_masks = Parameter : boolean[batch, length]
%hidden = Parameter : f32[batch, length, 8]
%shape = ShapeOf(%hidden)
%flat = Reshape(%visual_pos_masks, [-1])
%counted = Convert(%flat) {to=i64}
%sum = CumSum(%counted) {axis=0}
%last = Add(%sum, -1)
%place = Maximum(%last, 0)
%level = Gather(%deepstack_visual_embeds, 1) {axis=0}
%rows = Gather(%level, %place) {axis=0}
%each = Reshape(%rows, %shape)
%ones = Convert(%visual_pos_masks) {to=f32}
%weights = Unsqueeze(%ones) {axes=[2]}
%weighed = Multiply(%each, %weights)
%out = Add(%hidden, %weighed)
Result(%out) {name=out}
"""


def added(text):
    return list(added_features(parse_model(text, "openvino").graph))


def test_features_are_added_to_hidden_states():
    (found,) = added(MODEL)
    assert (found.hidden.name, found.features.name, found.mask.name) == ("hidden", "level", "visual_pos_masks")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("%last = Add(%sum, -1)", "%last = Add(%sum, -2)"),
        ("{axis=0}\n%last", "{axis=0, exclusive=true}\n%last"),
        ("%sum = CumSum(%counted) {axis=0}", "%sum = CumSum(%counted) {axis=0, reverse=true}"),
        ("%weighed = Multiply(%each, %weights)", "%weighed = Multiply(%each, 1.0)"),
        ("%rows = Gather(%level, %place) {axis=0}", "%rows = Gather(%level, %place) {axis=1}"),
        ("Gather(%deepstack_visual_embeds, 1) {axis=0}", "Gather(%hidden, 1) {axis=0}"),
    ],
)
def test_other_sums_are_not_found(old, new):
    assert old in MODEL
    assert not added(MODEL.replace(old, new))
