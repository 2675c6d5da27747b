"""Find the tensors of ONNX operators that may be f16, by schemas."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from graphpass.dialects.onnx.walk import ONNX_DOMAINS
from graphpass.ir.graph import Node

_HALF, _FLOAT = "tensor(float16)", "tensor(float)"

_ALL: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset())

#: Operators of ONNX Runtime 1.32 with f16, and ports that are no f16 in them (``bert_defs.cc``, ``contrib_defs.cc``).
#: States of LinearAttention may be, but add up over all tokens.
_RUNTIME: dict[str, tuple[frozenset[int], frozenset[int]]] = {
    **dict.fromkeys(("BiasGelu", "FastGelu", "Gelu", "QuickGelu", "RotaryEmbedding"), _ALL),
    **dict.fromkeys(("FusedMatMul", "GatherBlockQuantized", "MatMulNBits", "MoE"), _ALL),
    **dict.fromkeys(("CausalConvWithState", "MultiHeadAttention"), _ALL),
    "GroupQueryAttention": (frozenset({12, 13}), frozenset()),
    "LinearAttention": (frozenset({3}), frozenset({1})),
    "QMoE": (frozenset({15, 16, 17, 18}), frozenset()),
    "SimplifiedLayerNormalization": (frozenset(), frozenset({1})),
    "SkipLayerNormalization": (frozenset(), frozenset({1, 2})),
    "SkipSimplifiedLayerNormalization": (frozenset(), frozenset({1, 2})),
}


@dataclass(frozen=True, slots=True)
class HalfPorts:
    """Inputs and outputs of a node that are f16 together."""

    inputs: frozenset[int] = frozenset()
    outputs: frozenset[int] = frozenset()


def half_ports(node: Node, opset: int) -> HalfPorts:
    """Return the ports that are f16 if ``node`` computes in f16; none if it cannot.

    Args:
        node: A node of an ONNX graph.
        opset: Version of ONNX's own operators that the model imports.
    """
    native = node.native
    if node.op == "Convert":
        return HalfPorts(frozenset({0}), frozenset({0}))
    if not isinstance(native, onnx.NodeProto) or any(entry.HasField("g") for entry in native.attribute):
        return HalfPorts()
    is_onnx = native.domain in ONNX_DOMAINS
    if is_onnx and onnx.defs.has(native.op_type, opset, ""):
        return _by_schema(node, onnx.defs.get_schema(native.op_type, opset, ""))
    if native.op_type not in _RUNTIME or not (is_onnx or native.domain == "com.microsoft"):
        return HalfPorts()
    fixed_inputs, fixed_outputs = _RUNTIME[native.op_type]
    inputs, outputs = range(len(native.input)), range(len(native.output))
    return HalfPorts(frozenset(inputs) - fixed_inputs, frozenset(outputs) - fixed_outputs)


def _by_schema(node: Node, schema: onnx.defs.OpSchema) -> HalfPorts:
    allowed = {entry.type_param_str: set(entry.allowed_type_strs) for entry in schema.type_constraints}
    inputs, outputs = (
        [formal[min(port, len(formal) - 1)].type_str for port in range(count)]
        for formal, count in ((schema.inputs, len(node.native.input)), (schema.outputs, len(node.native.output)))
    )
    taken = {name for name in inputs if {_HALF, _FLOAT} <= allowed.get(name, set())}
    made = taken
    if node.op == "DequantizeLinear" and inputs[1] in taken:
        # Without output_dtype the type of the scale, which is a parameter of its own from opset 23 on.
        made = {outputs[0]}
    return HalfPorts(
        frozenset(port for port, name in enumerate(inputs) if name in taken),
        frozenset(port for port, name in enumerate(outputs) if name in made),
    )
