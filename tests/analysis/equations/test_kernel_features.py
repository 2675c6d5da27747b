"""Features of GroupQueryAttention that a kernel lacks, by attributes and inputs."""

import pytest

from graphpass.analysis.equations.kernel_features import why_refused
from graphpass.testing import parse_model

PORTS = ["%x", "%x", "%x", "%past", "%past", "%lengths", "%total"] + ["_"] * 10
EVERY = ("padding", "mask", "rotation", "window", "softcap", "sinks", "packing", "integers", "mixed scales", "counts")


def node_of(attributes="", **ports):
    operands = PORTS.copy()
    for port, operand in ports.items():
        operands[int(port[1:])] = operand
    while operands[-1] == "_":
        operands.pop()
    text = """%x = Parameter : f32[b, n, 8]
%past = Parameter : f32[b, 2, p, 4]
%lengths = Parameter : i32[b]
%total = Parameter : i32[1]
%bias = Parameter : f32[b, 1, n, t]
%sink = Constant : f32[2]
%count = Parameter : i32[b]
"""
    text += f"%y = com.microsoft.GroupQueryAttention({', '.join(operands)}) "
    text += f"{{num_heads=2, kv_num_heads=2{attributes}}} : f32[b, n, 8]\nResult(%y) {{name=y}}"
    (node,) = parse_model(text).graph.of_op("GroupQueryAttention")
    return node


@pytest.mark.parametrize(
    ("given", "feature", "words"),
    [
        ({"p10": "%bias"}, "padding", "a bias of padding"),
        ({"p10": "%bias", "attributes": ", causal=0"}, "mask", "a mask as a bias"),
        ({"attributes": ", do_rotary=1"}, "rotation", "a rotary embedding"),
        ({"attributes": ", local_window_size=4"}, "window", "a window"),
        ({"attributes": ", softcap=50.0"}, "softcap", "a soft cap"),
        ({"p11": "%sink"}, "sinks", "attention sinks"),
        ({"attributes": ", smooth_softmax=1"}, "sinks", "attention sinks"),
        ({"p1": "_", "p2": "_"}, "packing", "query, key and value in one tensor"),
        ({"attributes": ", k_quant_type=PER_TENSOR, v_quant_type=PER_TENSOR"}, "integers", "caches in integers"),
        ({"attributes": ", k_quant_type=PER_TENSOR, v_quant_type=PER_CHANNEL"}, "mixed scales", "of different kinds"),
        ({"p16": "%count"}, "counts", "the number of new tokens of each row"),
    ],
)
def test_a_lacking_feature_is_named(given, feature, words):
    node = node_of(**given)
    assert words in why_refused(node, {feature})
    others = {"mask": {"padding"}, "mixed scales": {"integers"}}.get(feature, set())
    assert why_refused(node, set(EVERY) - {feature} - others) is None


def test_a_plain_operator_needs_no_feature():
    assert why_refused(node_of(), EVERY) is None
    assert why_refused(node_of(", local_window_size=-1, softcap=0.0, smooth_softmax=0, causal=0"), EVERY) is None
