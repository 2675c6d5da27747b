"""Effective masks of fused operators and of decomposed attention, evaluated at each query and key."""

import numpy
import pytest

from graphpass.analysis.attention.effective_mask import attention_mask, partial_mask
from graphpass.analysis.attention.find import find_attention
from graphpass.analysis.attention.mask import AttentionMask
from graphpass.analysis.caches.masks import find_elements
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.evaluate import value_at
from graphpass.ir.miss import Miss
from graphpass.testing import parse_model

GIVEN = """%q = Parameter : f32[2, 2, 3, 4]
%k = Parameter : f32[2, 2, 5, 4]
%flat = Parameter : f32[2, 3, 8]
%past = Parameter : f32[2, 2, 2, 4]
%kept = Parameter : boolean[2, 1, 3, 5]
%added = Parameter : f32[5]
%lengths = Parameter : i32[2]
%total = Parameter : i32[1]
%keys = Parameter : f32[2, 5, 8]
%row = Parameter : i32[2, 5]
%rows = Parameter : i32[2, 3, 5]
"""
KEPT = numpy.random.default_rng(0).random([2, 1, 3, 5]) < 0.5
LENGTHS = numpy.array([4, 2], "int32")
INPUTS = {"kept": KEPT, "lengths": LENGTHS, "row": KEPT[:, 0, 0].astype("int32"), "rows": KEPT[:, 0].astype("int32")}
ROW, QUERY, KEY = numpy.ogrid[:2, :3, :5]
DECOMPOSED = """%t = Transpose(%k) {order=[0, 1, 3, 2]}
%s = MatMul(%q, %t)
MASKED
%w = Softmax(%m) {axis=3}
%y = MatMul(%w, %k)"""


def mask_of(text, dialect="onnx"):
    opset = {"opset": 23} if dialect == "onnx" else {}
    model = parse_model(f"{GIVEN}{text}\nResult(%y) {{name=y}}", dialect, **opset)
    (attention,) = model.analysis(find_attention)
    return attention_mask(model.analysis(find_elements), attention)


def evaluated(mask, expr):
    """Return an expression for each row, query and key of head 0."""
    scope, found = mask.scope, numpy.zeros([2, 3, 5])
    for place in numpy.ndindex(2, 3, 5):
        values = dict(zip((scope.row, scope.query, scope.key), place, strict=True)) | {scope.head: 0}
        values |= {part: 2 for part in ex.walk(expr) if part.op == "length"}
        found[place] = value_at(expr, values, lambda part, at: INPUTS[part.args[0]][at].item())
    return found


@pytest.mark.parametrize(
    ("text", "dialect", "visible"),
    [
        ("%y = ScaledDotProductAttention(%q, %k, %k)", "openvino", True),
        ("%y = ScaledDotProductAttention(%q, %q, %q) {causal=true}", "openvino", KEY <= QUERY),
        ("%y = ScaledDotProductAttention(%q, %k, %k, %kept)", "openvino", KEPT[:, 0]),
        ("%y = Attention(%q, %k, %k, %kept) : f32[2, 2, 3, 4]", "onnx", KEPT[:, 0]),
        ("%y = Attention(%q, %k, %k) {is_causal=1} : f32[2, 2, 3, 4]", "onnx", KEY <= QUERY + 2),
        ("%y = com.microsoft.GroupQueryAttention(%flat, %flat, %flat, %past, %past, %lengths, %total) "
         "{num_heads=2, kv_num_heads=2} : f32[2, 3, 8]", "onnx",
         (LENGTHS[:, None, None] >= KEY) & (LENGTHS[:, None, None] - 2 + QUERY >= KEY)),
        ("%y = com.microsoft.GroupQueryAttention(%flat, %flat, %flat, %past, %past, %lengths, %total) "
         "{num_heads=2, kv_num_heads=2, local_window_size=2} : f32[2, 3, 8]", "onnx",
         (LENGTHS[:, None, None] >= KEY) & (LENGTHS[:, None, None] - 2 + QUERY >= KEY)
         & (LENGTHS[:, None, None] - 4 + QUERY < KEY)),
        ("%y = com.microsoft.MultiHeadAttention(%flat, %keys, %keys, _, %row) {num_heads=2} : f32[2, 3, 8]", "onnx",
         KEPT[:, :, 0]),
        ("%y = com.microsoft.MultiHeadAttention(%flat, %keys, %keys, _, %rows) {num_heads=2} : f32[2, 3, 8]", "onnx",
         KEPT[:, 0]),
        (DECOMPOSED.replace("MASKED", "%m = Select(%kept, %s, -3.4e38)"), "onnx", KEPT[:, 0]),
        (DECOMPOSED.replace("MASKED", "%no = LogicalNot(%kept)\n%m = Select(%no, %s, -3.4e38)"), "onnx", ~KEPT[:, 0]),
    ],
)  # fmt: skip
def test_visible_keys(text, dialect, visible):
    mask = mask_of(text, dialect)
    assert not mask.misses
    found = evaluated(mask, mask.visible)
    width = 3 if "%q, %q" in text else 5
    numpy.testing.assert_array_equal(found[..., :width], numpy.broadcast_to(visible, [2, 3, 5])[..., :width])


@pytest.mark.parametrize(
    ("masked", "bias"),
    [
        ("%m = Add(%s, %low)", 2.0),
        ("%high = Select(%kept, -2.5, 3.4e38)\n%m = Subtract(%s, %high)", 2.5),
        ("%a = Add(%s, %low)\n%m = Multiply(%a, 0.5)", 1.0),
        ("%a = Add(%s, %low)\n%m = Add(%a, 0.25)", 2.25),
    ],
)
def test_added_numbers_exclude_keys_or_are_a_bias(masked, bias):
    mask = mask_of(DECOMPOSED.replace("MASKED", f"%low = Select(%kept, 2.0, -3.4e38)\n{masked}"))
    assert not mask.misses
    numpy.testing.assert_array_equal(evaluated(mask, mask.visible), KEPT[:, 0])
    numpy.testing.assert_array_equal(evaluated(mask, mask.bias)[KEPT[:, 0]], bias)


@pytest.mark.parametrize(
    ("text", "dialect", "reason"),
    [
        ("%y = ScaledDotProductAttention(%q, %k, %k) {causal=true}", "openvino", "with a past differs between kernels"),
        (DECOMPOSED.replace("MASKED", "%a = Add(%s, %added)\n%f = ReduceSum(%added) {axes=[0]}\n%m = Multiply(%a, %f)"),
         "onnx", "its scale f is computed"),
    ],
)  # fmt: skip
def test_unknown_masks_state_the_reason(text, dialect, reason):
    (miss,) = mask_of(text, dialect).misses
    assert reason in miss.reason


def test_a_tensor_upstream_of_a_mask_as_the_only_mask():
    text = "%all = LogicalOr(%kept, %kept)\n%y = ScaledDotProductAttention(%q, %k, %k, %all)"
    model = parse_model(f"{GIVEN}{text}\nResult(%y) {{name=y}}", "openvino")
    (attention,) = model.analysis(find_attention)
    elements, parameters = model.analysis(find_elements), model.graph.parameters
    found = partial_mask(elements, attention, parameters["kept"])
    assert isinstance(found, AttentionMask)
    assert (evaluated(found, found.visible) == KEPT[:, 0]).all()
    for name in ("q", "added"):
        assert isinstance(partial_mask(elements, attention, parameters[name]), Miss)
