"""The source of GroupQueryAttention's row lengths: sums of a mask, or the total of full rows."""

import pytest

from graphpass.analysis.equations.row_lengths import LENGTHS, TOTAL, only_summed_mask, rows_are_full, summed_mask
from graphpass.testing import parse_model

GIVEN = """%mask = Parameter : i64[b, t]
%other = Parameter : i64[b, t]
%x = Parameter : f32[b, n, 8]
%past = Parameter : f32[b, 2, p, 4]
%shape = ShapeOf(%mask)
%size = Gather(%shape, 1) {axis=0}
%count = Convert(%size) {to=i32}
"""
QUERY = """
%lengths = Convert(%last) {to=i32}
%y = com.microsoft.GroupQueryAttention(%x, %x, %x, %past, %past, %lengths, %count) SIZES
Result(%y) {name=y}""".replace("SIZES", "{num_heads=2, kv_num_heads=2} : f32[b, n, 8]")


def graph_of(text, more=""):
    return parse_model(GIVEN + text + QUERY + more).graph


@pytest.mark.parametrize(
    ("text", "mask"),
    [
        ("%sum = ReduceSum(%mask) {axes=[1]}\n%last = Subtract(%sum, 1)", "mask"),
        (
            "%sum = ReduceSum(%mask) {axes=[-1], keep=true}\n%less = Add(%sum, -1)\n%last = Squeeze(%less) {axes=[1]}",
            "mask",
        ),
        ("%m = Convert(%mask) {to=i32}\n%sum = ReduceSum(%m) {axes=[1]}\n%last = Subtract(%sum, 1)", "mask"),
        ("%sum = ReduceSum(%mask) {axes=[1]}\n%last = Subtract(%sum, 2)", None),
        ("%sum = ReduceSum(%mask) {axes=[0]}\n%last = Subtract(%sum, 1)", None),
        ("%sum = ReduceMax(%mask) {axes=[1]}\n%last = Subtract(%sum, 1)", None),
        ("%sum = ReduceSum(%mask) {axes=[1]}\n%last = Identity(%sum)", None),
    ],
)
def test_sums_of_a_mask(text, mask):
    graph = graph_of(text)
    (node,) = graph.of_op("GroupQueryAttention")
    found = summed_mask(graph, node.input(LENGTHS))
    assert (found and found.name) == mask
    assert only_summed_mask(graph) == found
    assert summed_mask(graph, None) is None


def test_attention_with_two_masks_has_no_common_one():
    sums = "%sum = ReduceSum(%mask) {axes=[1]}\n%last = Subtract(%sum, 1)"
    more = QUERY.replace("%last", "%last2").replace("%lengths", "%lengths2").replace("%y", "%z").replace("=y", "=z")
    graph = graph_of(sums, "\n%sum2 = ReduceSum(%other) {axes=[1]}\n%last2 = Subtract(%sum2, 1)" + more)
    assert only_summed_mask(graph) is None


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("%less = Subtract(%size, 1)\n%one = Unsqueeze(%less) {axes=[0]}\n%rows = Gather(%shape, [0]) {axis=0}\n"
         "%last = Broadcast(%one, %rows)", True),
        ("%one = Unsqueeze(%size) {axes=[0]}\n%last = Identity(%one)", False),
        ("%sum = ReduceSum(%mask) {axes=[1]}\n%last = Subtract(%sum, 1)", False),
    ],
)  # fmt: skip
def test_full_rows_have_the_total_less_one(text, full):
    graph = graph_of(text)
    (node,) = graph.of_op("GroupQueryAttention")
    assert rows_are_full(graph, node.source(LENGTHS), node.source(TOTAL)) == full
