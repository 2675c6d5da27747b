"""Classes of operators, states inside operators, and quantized caches."""

import pytest

from graphpass.ir import operators
from graphpass.ir.operators import inner_state, quantized_bits
from graphpass.testing import parse_model

LSTM = """%x = Parameter : f32[n, b, 4]
%h = Parameter : f32[1, b, 8]
%c = Parameter : f32[1, b, 8]
%w = Constant : f32[1, 32, 4]
%r = Constant : f32[1, 32, 8]
%y, %hn, %cn = LSTM(%x, %w, %r, _, _, %h, %c) {hidden_size=8}
%z = Relu(%y)
Result(%z) {name=y}
Result(%hn) {name=h_out}
Result(%cn) {name=c_out}"""
GRAPH = parse_model(LSTM).graph


@pytest.mark.parametrize(
    ("past", "present", "ports"),
    [
        (None, None, (5, 1)),
        ("h", None, (5, 1)),
        ("c", None, (6, 2)),
        (None, "c_out", (6, 2)),
        ("c", "c_out", (6, 2)),
        ("c", "h_out", None),
        ("x", None, None),
    ],
)
def test_the_state_between_two_values(past, present, ports):
    (node,) = GRAPH.of_op("LSTM")
    before = GRAPH.parameters[past] if past else None
    after = GRAPH.writes[present].source() if present else None
    state = inner_state(node, before, after)
    assert (state and (state.past, state.present)) == ports


def test_other_operators_have_no_state():
    assert inner_state(next(GRAPH.of_op("Relu"))) is None


@pytest.mark.parametrize(
    ("attributes", "bits"),
    [
        ("", None),
        (', k_quant_type="NONE", v_quant_type="NONE"', None),
        (', k_quant_type="PER_TENSOR", v_quant_type="PER_TENSOR"', 8),
        (', k_quant_type="PER_CHANNEL", v_quant_type="PER_CHANNEL", kv_cache_bit_width=4', 4),
    ],
)
def test_bits_of_quantized_caches(attributes, bits):
    text = "%q = Parameter : f32[b, n, 8]\n%y = com.microsoft.GroupQueryAttention(%q, %q, %q) "
    text += f"{{num_heads=2, kv_num_heads=2{attributes}}} : f32[b, n, 8]\nResult(%y) {{name=y}}"
    (node,) = parse_model(text).graph.of_op("GroupQueryAttention")
    assert quantized_bits(node) == bits


@pytest.mark.parametrize("op", ["Softmax", "MatMul", "Gather", "ReduceSum", "CumSum", "Concat", "Reshape"])
def test_operators_across_positions_are_not_elementwise(op):
    assert op not in operators.ELEMENTWISE
