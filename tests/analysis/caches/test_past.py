"""Pasts after the Gather of beams, and the axes of their shapes that operators read."""

import pytest

from graphpass.analysis.caches.past import asked_axes, length_reads, past_of
from graphpass.testing import parse_model

CACHE = """%beam_idx = Parameter : i32[b]
%other = Parameter : i32[b]
%past = ReadValue {{variable=k}} : f32[b, 2, p, 4]
%own = Gather(%past, {index}) {{axis=0}}
%shape = ShapeOf({of})
%size = Gather(%shape, {axes}) {{axis=0}}
Assign(%own) {{variable=k}}
Result(%size) {{name=size}}"""


def graph_of(index="%beam_idx", of="%own", axes="2"):
    return parse_model(CACHE.format(index=index, of=of, axes=axes), "openvino").graph


@pytest.mark.parametrize(("index", "name"), [("%beam_idx", "own"), ("%other", "past"), ("[0, 1]", "past")])
def test_only_the_gather_by_beam_idx_is_part_of_the_past(index, name):
    graph = graph_of(index)
    (read,) = graph.of_op("ReadValue")
    assert past_of(graph, read).name == name


@pytest.mark.parametrize(
    ("of", "axes", "found"),
    [("%own", "2", {2}), ("%past", "[-1]", {3}), ("%own", "[0, 1]", None), ("%past", "[1, 2]", {1, 2})],
)
def test_sizes_of_positions_and_head_dim_are_length_reads(of, axes, found):
    graph = graph_of(of=of, axes=axes)
    (read,) = graph.of_op("ReadValue")
    uses = list(length_reads(graph, read))
    assert [asked_axes(graph, use) for use in uses] == ([] if found is None else [found])
