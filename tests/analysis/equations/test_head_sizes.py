"""Sizes of heads that kernels of GroupQueryAttention support."""

import pytest

from graphpass.analysis.equations.head_sizes import why_sizes_refused
from graphpass.testing import parse_model

GRAPH = """%x = Parameter : f32[b, n, 8]
%past = Parameter : f32[b, 2, p, 4]
%lengths = Parameter : i32[b]
%total = Parameter : i32[1]
%table = Parameter : f32[64, PAIRS]
%y = com.microsoft.GroupQueryAttention(%x, %x, %x, %past, %past, %lengths, %total, %table, %table) TRAITS : f32[b, n, 8]
Result(%y) {name=y}"""


def node_of(rotates, pairs=8):
    attributes = f"{{num_heads=2, kv_num_heads=2, do_rotary={int(rotates)}}}"
    graph = parse_model(GRAPH.replace("PAIRS", str(pairs)).replace("TRAITS", attributes)).graph
    return next(graph.of_op("GroupQueryAttention"))


@pytest.mark.parametrize(
    ("head_dim", "node", "words"),
    [
        (20, node_of(False), "it has heads of 20, and its kernels require a multiple of 8"),
        (24, node_of(True), "it rotates heads of 24, and its kernels require a multiple of 16"),
        (16, node_of(True, pairs=4), "it rotates 4 pairs of channels, and its kernels require a multiple of 8"),
    ],
)
def test_sizes_without_a_kernel_are_named(head_dim, node, words):
    assert why_sizes_refused(node, head_dim) == words


@pytest.mark.parametrize(("head_dim", "rotates"), [(24, False), (16, True), (None, True)])
def test_other_sizes_have_a_kernel(head_dim, rotates):
    assert why_sizes_refused(node_of(rotates), head_dim) is None
