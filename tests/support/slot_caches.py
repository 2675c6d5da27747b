"""A decoder of one layer whose caches of fixed capacity are written at the slots from a count on."""

from __future__ import annotations

from graphpass.ir.model import Model
from graphpass.ir.types import Dialect
from graphpass.testing import parse_model

CAPACITY = 12

_SLOTS = "%slots = Add(%range, %count)"

_START = """%input_ids = Parameter : i64[b, n]
%attention_mask = Parameter : i64[b, t]
%count = Parameter : i64[]
%past_k = Parameter : f32[b, 2, 12, 4]
%past_v = Parameter : f32[b, 2, 12, 4]
%table = Constant : f32[23, 8]
%x = Gather(%table, %input_ids) {axis=0}
%sizes = ShapeOf(%input_ids)
%n = Gather(%sizes, 1) {axis=0}
%range = Range(0, %n, 1)
%slots = Add(%range, %count)
"""

_HEADS = """%weight_{name} = Constant : f32[8, 8]
%all_{name} = MatMul(%x, %weight_{name})
%apart_{name} = Reshape(%all_{name}, [0, 0, 2, 4])
%{name} = Transpose(%apart_{name}) {{order=[0, 2, 1, 3]}}
"""

#: torch.export writes index_copy as a scatter of whole slots in ONNX, and of elements in OpenVINO.
_WRITTEN: dict[Dialect, str] = {
    "onnx": """%turned_{name} = Transpose(%past_{name}) {{order=[2, 0, 1, 3]}}
%new_{name} = Transpose(%{name}) {{order=[2, 0, 1, 3]}}
%index_{name} = Unsqueeze(%slots) {{axes=[1]}}
%slots_{name} = ScatterNDUpdate(%turned_{name}, %index_{name}, %new_{name})
%whole_{name} = Transpose(%slots_{name}) {{order=[1, 2, 0, 3]}}
""",
    "openvino": """%sizes_{name} = ShapeOf(%{name})
%index_{name} = Broadcast(%slots, %sizes_{name}, [2]) {{mode=explicit}}
%whole_{name} = ScatterElementsUpdate(%past_{name}, %index_{name}, %{name}) {{axis=2}}
""",
}

_MASK = """%places = Unsqueeze(%slots) {axes=[0, 1, 3]}
%causal = LessEqual([[[[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]]]], %places)
%widths = ShapeOf(%attention_mask)
%width = Gather(%widths, [1]) {axis=0}
%rows = Gather(%widths, [0]) {axis=0}
%free = Subtract([12], %width)
%rest = Concat(%rows, %free) {axis=0}
%zeros = Broadcast(0, %rest)
%padded = Concat(%attention_mask, %zeros) {axis=1}
%tokens = Convert(%padded) {to=boolean}
%columns = Unsqueeze(%tokens) {axes=[1, 2]}
%seen = LogicalAnd(%causal, %columns)
%bias = Select(%seen, 0.0, -3.4e38)
"""

_ATTENTION: dict[Dialect, str] = {
    "onnx": """%across = Transpose(%whole_k) {order=[0, 1, 3, 2]}
%scores = MatMul(%q, %across)
%scaled = Multiply(%scores, 0.5)
%masked = Add(%scaled, %bias)
%weights = Softmax(%masked) {axis=-1}
%result = MatMul(%weights, %whole_v)
""",
    "openvino": "%result = ScaledDotProductAttention(%q, %whole_k, %whole_v, %bias)\n",
}

_END = """%back = Transpose(%result) {order=[0, 2, 1, 3]}
%merged = Reshape(%back, [0, 0, 8])
%head = Constant : f32[8, 23]
%y = MatMul(%merged, %head)
%after = Add(%count, %n)
Result(%y) {name=logits}
Result(%whole_k) {name=present.0.key}
Result(%whole_v) {name=present.0.value}
Result(%after) {name=count_after}
"""


_GUARD = """%shown = Convert(%seen) {to=f32}
%sum = ReduceSum(%shown) {axes=[3], keep=true}
%hidden = Less(%sum, 1.0)
%result = Select(%hidden, 0.0, %unguarded)
"""

#: The form of ``expand`` by OpenVINO's frontend for torch.export, whose sizes no analysis determines.
_EXPANDED = """%wide_sizes = ShapeOf(%bias)
%missing = Equal(%wide_sizes, 1)
%length = Reshape(%n, [1])
%batch = Gather(%sizes, [0]) {axis=0}
%target = Concat(%batch, [1], %length, [12]) {axis=0}
%wide = Select(%missing, %target, %wide_sizes)
%expanded = Broadcast(%bias, %wide) {mode=numpy}
"""


def slot_decoder(dialect: Dialect, *, start: str = _SLOTS, is_open: bool = False, is_guarded: bool = False) -> Model:
    """Return the decoder, with inputs ``input_ids``, ``attention_mask`` and ``count``.

    Args:
        dialect: The dialect.
        start: Replacement of the line that computes the slots of new tokens.
        is_open: Whether the sizes of caches are not declared; only for OpenVINO.
        is_guarded: Whether results of queries without keys are set to 0.
    """
    begin = _START.replace(_SLOTS, start)
    attention = _ATTENTION[dialect]
    if is_open:
        begin = begin.replace("f32[b, 2, 12, 4]", "f32[b, h, c, d]")
        attention = _EXPANDED + attention.replace("%bias", "%expanded")
    heads = "".join(_HEADS.format(name=name) for name in "qkv")
    written = "".join(_WRITTEN[dialect].format(name=name) for name in "kv")
    if is_guarded:
        attention = attention.replace("%result", "%unguarded") + _GUARD
    return parse_model(begin + heads + written + _MASK + attention + _END, dialect)
