"""Values that NPUW transposes, and reads of their sizes that are wrong after that."""

import pytest

from graphpass.targets.npu.values import is_transposed, misreads, reordered
from graphpass.testing import parse_model

MODEL = """%q = Parameter : f32[b, 4, n, 4]
%x = Parameter : f32[b, n, 2, 4]
%beam_idx = Parameter : i32[b]
%past = ReadValue {{variable=v}} : f32[b, 2, p, 4]
%own = Gather(%past, %beam_idx, 0)
%new = {new}
%values = Concat(%own, %new) {{axis=2}}
%shape = ShapeOf(%own)
%length = Gather(%shape, 2) {{axis=0}}
{use}
Assign(%values) {{variable=v}}
Result(%y) {{name=y}}"""
NEW = "Transpose(%x, [0, 2, 1, 3])"
USE = "%x2 = Parameter : f32[b, 2, n, p]\n%y = MatMul(%x2, %values)"


@pytest.mark.parametrize(
    ("new", "use", "transposed"),
    [
        (NEW, USE, True),
        ("Reshape(%x, [0, 2, -1, 4]) {special_zero=true}", USE, True),
        (NEW, "%y = Relu(%values)", False),
        ("Parameter : f32[b, 2, n, 4]", USE, False),
        (NEW, "%x2 = Parameter : f32[b, 2, 4, n]\n%y = MatMul(%values, %x2)", False),
        (NEW, "%k = Parameter : f32[b, 2, m, 4]\n%y = ScaledDotProductAttention(%k, %k, %values)", True),
        (NEW, "%k = Parameter : f32[b, 2, m, 4]\n%y = ScaledDotProductAttention(%k, %values, %k)", False),
        (NEW, "%u = Unsqueeze(%values, 2)\n%c = Broadcast(%u, [1, 2, 2, 1, 4]) {mode=bidirectional}\n"
         "%r = Reshape(%c, [0, 4, -1, 4]) {special_zero=true}\n%y = ScaledDotProductAttention(%q, %q, %r)", True),
    ],
)  # fmt: skip
def test_values_of_attention_are_transposed(new, use, transposed):
    graph = parse_model(MODEL.format(new=new, use=use), "openvino").graph
    (read,) = graph.of_op("ReadValue")
    assert is_transposed(graph, read) == transposed


@pytest.mark.parametrize(("new", "found"), [(NEW, []), ("Transpose(%x, [0, 2, 3, 1])", ["new"])])
def test_other_orders_are_found(new, found):
    given = "f32[b, n, 2, 4]" if new == NEW else "f32[b, 4, 2, n]"
    text = MODEL.format(new=new, use=USE).replace("f32[b, n, 2, 4]", given)
    graph = parse_model(text, "openvino").graph
    (read,) = graph.of_op("ReadValue")
    assert [node.name for node in reordered(graph, read)] == found


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ("\nResult(%length) {name=length}", ["length"]),
        ("\n%heads = Gather(%shape, 1) {axis=0}\nResult(%heads) {name=heads}", []),
        ("\n%u = Unsqueeze(%values, 2)\n%one = Unsqueeze(%length, 0)\n%t = Concat([1, 2, 2], %one, [1]) {axis=0}\n"
         "%c = Broadcast(%u, %t) {mode=bidirectional}\nResult(%c) {name=copies}", []),
    ],
)  # fmt: skip
def test_sizes_are_misread_unless_they_are_for_copies(more, found):
    graph = parse_model(MODEL.format(new=NEW, use=USE) + more, "openvino").graph
    (read,) = graph.of_op("ReadValue")
    assert [use.node.name for use in misreads(graph, read)] == found
