"""The hidden size of models that take embeddings."""

import pytest

from graphpass.analysis.symbolic.hidden_size import hidden_size
from graphpass.testing import parse_model, tiny_model


@pytest.mark.parametrize(
    ("shape", "body", "expected"),
    [
        ("batch, length, 24", "%y = Relu(%inputs_embeds)", 24),
        # Weights tell sizes that inputs do not declare.
        ("batch, length, width", "%w = Constant : f32[24, 8]\n%y = MatMul(%inputs_embeds, %w)", 24),
        ("batch, length, width", "%y = Relu(%inputs_embeds)", None),
    ],
)
def test_sizes_are_declared_or_those_of_weights(shape, body, expected):
    model = parse_model(f"%inputs_embeds = Parameter : f32[{shape}]\n{body}\nResult(%y) {{name=y}}")
    assert hidden_size(model) == expected


def test_models_of_token_ids_have_none():
    assert hidden_size(tiny_model("llama", layers=1)) is None
