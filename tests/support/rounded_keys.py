"""A decoder whose keys are rounded whenever they are read, as NNCF quantizes attention."""

from __future__ import annotations

from collections.abc import Sequence

import openvino
from openvino import opset13

from graphpass.dialects.openvino.model import OpenVINOModel
from support.loaded import openvino_model


def rounded(
    value: openvino.Output, ends: Sequence[float] = (-3.0, 3.0), results: Sequence[float] | None = None
) -> openvino.Output:
    """A FakeQuantize of 256 levels."""
    bounds = [opset13.constant(end, dtype="float32") for end in (*ends, *(results or ends))]
    return opset13.fake_quantize(value, *bounds, levels=256).output(0)


def with_rounded_keys(*, transposed: bool = False, results: Sequence[float] | None = None) -> OpenVINOModel:
    """Return llama with a FakeQuantize after the Concat of each key cache, or after a pair of Transposes around it."""
    native = openvino_model("llama", "ov-stateful").ov_model.clone()
    for attention in native.get_ordered_ops():
        if attention.get_type_name() != "ScaledDotProductAttention":
            continue
        value = attention.input_value(1)
        while value.get_node().get_type_name() != "Concat":
            value = value.get_node().input_value(0)
        readers = [port for port in value.get_target_inputs() if port.get_node().get_type_name() != "Assign"]
        order = opset13.constant([0, 1, 3, 2])
        quantized = rounded(opset13.transpose(value, order).output(0) if transposed else value, results=results)
        for port in readers:
            if port.get_node().get_type_name() != "ShapeOf":
                port.replace_source_output(opset13.transpose(quantized, order).output(0) if transposed else quantized)
    native.validate_nodes_and_infer_types()
    return OpenVINOModel(native)
