"""Epsilons of norms, as attributes and in decomposed norms; norms of few channels."""

import pytest

from graphpass.analysis.equations.norms import find_epsilons, narrow_norms
from graphpass.testing import parse_model

MEAN = "%s = Multiply(%x, %x)\n%m = ReduceMean(%s) {axes=[2], keep=true}\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (MEAN + "%y = Add(%m, 0.001)", [("y", 0.001)]),
        (MEAN + "%y = Add(0.001, %m)", [("y", 0.001)]),
        (MEAN + "%c = Identity(%m)\n%y = Maximum(%c, 0.001)", [("y", 0.001)]),
        (MEAN + "%y = Add(%m, 0.5)", []),
        (MEAN + "%y = Add(%m, -0.001)", []),
        (MEAN + "%y = Multiply(%m, 0.001)", []),
        ("%y = Add(%x, 0.001)", []),
        ("%w = Constant : f32[8]\n%y = LayerNormalization(%x, %w) {epsilon=0.25}", [("y", 0.25)]),
        ("%w = Constant : f32[8]\n%y = RMSNormalization(%x, %w) {epsilon=0.125}", [("y", 0.125)]),
    ],
)
def test_epsilons(text, found):
    model = parse_model(f"%x = Parameter : f32[b, n, 8]\n{text}\nResult(%y) {{name=y}}", opset=23)
    assert [(name, pytest.approx(number)) for name, number in find_epsilons(model)] == found


@pytest.mark.parametrize(
    ("shape", "attributes", "found"),
    [
        ("b, n, 2, 8", "", True),
        ("b, n, 2, 8", "axis=3", True),
        ("b, n, 2, 8", "axis=2", False),
        ("b, n, 2, 32", "", False),
        ("1, n, 8", "", False),
        ("2, n, 8", "", True),
        ("b, n, d", "", False),
    ],
)
def test_norms_of_few_channels_with_rows_along_several_axes(shape, attributes, found):
    width = "2, 8" if "axis=2" in attributes else shape.rsplit(", ", 1)[-1]
    width = "8" if width == "d" else width
    weight = f"%w = Constant : f32[{width}]\n"
    text = (
        f"%x = Parameter : f32[{shape}]\n{weight}%y = RMSNormalization(%x, %w) {{{attributes}}}\nResult(%y) {{name=y}}"
    )
    graph = parse_model(text.replace(" {}", ""), opset=23).graph
    assert [channels for _, channels in narrow_norms(graph, 16)] == ([8] if found else [])
