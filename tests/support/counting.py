"""A layer that adds learned positions, which a test computes."""

from __future__ import annotations

from graphpass.ir.model import Model
from graphpass.testing import parse_model

_LAYER = """
%input_ids = Parameter : i64[batch, length]
%past_key_values.0.key = Parameter : f32[batch, 2, past, 4]
%sizes = ShapeOf(%past_key_values.0.key) : i64[4]
%slots = Gather(%sizes, 2) {axis=0} : i64[]
%new = ShapeOf(%input_ids) : i64[2]
%length = Gather(%new, 1) {axis=0} : i64[]
COUNTED
%words = Constant : f32[9, 8]
%table = Constant : f32[40, 8]
%embedded = Gather(%words, %input_ids) {axis=0}
%placed = Gather(%table, %positions) {axis=0}
%hidden = Add(%embedded, %placed)
%heads = Reshape(%hidden, [0, 0, 2, 4])
%key = Transpose(%heads) {order=[0, 2, 1, 3]}
%present = Concat(%past_key_values.0.key, %key) {axis=2}
%scores = MatMul(%key, %present) {transpose_b=true}
%weights = Softmax(%scores) {axis=3}
%logits = MatMul(%weights, %present)
Result(%logits) {name=logits}
Result(%present) {name=present.0.key}
"""


def counting_model(*counted: str) -> Model:
    """The layer, with statements that compute ``%positions`` from the lengths ``%slots`` and ``%length``."""
    return parse_model(_LAYER.replace("COUNTED", "\n".join(counted)), "openvino")
