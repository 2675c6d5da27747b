"""One layer whose attention is ONNX's own operator, with past and present."""

from __future__ import annotations

import numpy
import onnx

from graphpass.dialects.onnx.model import OnnxModel

#: ONNX Runtime wants a row for each query in the masks of ONNX's own operator.
_ROWS = """
      seen = Cast<to=9>(attention_mask)
      row = Unsqueeze(seen, middle)
      length_only = Shape<start=1, end=2>(input_ids)
      shape = Concat<axis=0>(ones, length_only, one)
      rows = Expand(row, shape)
"""

#: How a model with ONNX's own operator may mask: the inputs it has for that, and the nodes that make the mask.
OPERATOR_MASKS = {
    "none": ("", "", '""'),
    "boolean": (", int64[batch, total] attention_mask", _ROWS, "rows"),
    "additive": (", int64[batch, total] attention_mask", f"{_ROWS} mask = Where(rows, zero, lowest)", "mask"),
}


def decoder_with_attention_operator(masked: str) -> OnnxModel:
    """One layer whose attention is ONNX's operator, with past and present."""
    inputs, nodes, mask = OPERATOR_MASKS[masked]
    numbers = numpy.random.default_rng(2)
    text = f"""
    <ir_version: 10, opset_import: ["" : 23]>
    tiny (int64[batch, length] input_ids, int64[batch, length] position_ids{inputs},
          float[batch, 2, past, 4] past_key_values_key, float[batch, 2, past, 4] past_key_values_value)
      => (float[batch, length, 320] logits, float[batch, 2, total, 4] present_key,
          float[batch, 2, total, 4] present_value)
      <int64[2] middle = {{1, 2}}, int64[2] ones = {{1, 1}}, int64[1] one = {{1}},
       float zero = {{0.0}}, float lowest = {{-1000000000.0}}>
    {{
      token = Gather(tokens, input_ids)
      place = Gather(places, position_ids)
      hidden = Add(token, place)
      query = MatMul(hidden, turn)
      {nodes}
      mixed, present_key, present_value = Attention<is_causal=1, q_num_heads=2, kv_num_heads=2>(
        query, hidden, token, {mask}, past_key_values_key, past_key_values_value)
      logits = MatMul(mixed, head)
    }}
    """
    proto = onnx.parser.parse_model(text)
    for name, shape in {"tokens": [320, 8], "places": [64, 8], "turn": [8, 8], "head": [8, 320]}.items():
        array = numbers.standard_normal(shape).astype(numpy.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return OnnxModel(proto)
