"""Find inputs and outputs of ONNX operators that support 16-bit types, by schemas."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from graphpass.dialects.onnx.walk import ONNX_DOMAINS
from graphpass.dialects.rounding import Half
from graphpass.ir.graph import Node

_FLOAT = "tensor(float)"
_HALVES: dict[Half, str] = {"f16": "tensor(float16)", "bf16": "tensor(bfloat16)"}

_ALL: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset())

#: ONNX operators with a bf16 kernel on CUDA, the only provider with bf16 (docs/OperatorKernels.md of ONNX Runtime).
#: Among others, Clip, Pad, comparisons and DequantizeLinear have none.
_BRAIN = frozenset(
    {
        *("Abs", "Add", "Attention", "Concat", "Conv", "Div", "Erf", "Expand", "Flatten", "Gather", "GatherElements"),
        *("GatherND", "Gelu", "Gemm", "HardSigmoid", "HardSwish", "Identity", "LayerNormalization", "MatMul", "Max"),
        *("Min", "Mul", "Neg", "RMSNormalization", "Relu", "Reshape", "RotaryEmbedding", "ScatterElements"),
        *("ScatterND", "Sigmoid", "Slice", "Split", "Squeeze", "Sub", "Sum", "Tanh", "TensorScatter", "Tile"),
        *("Transpose", "Trilu", "Unsqueeze", "Where"),
    }
)

#: Operators of ONNX Runtime 1.32 with 16-bit types, and their inputs and outputs of other types (``bert_defs.cc``,
#: ``contrib_defs.cc``). The state of LinearAttention supports 16 bits, but accumulates rounding errors over all tokens.
_RUNTIME: dict[str, tuple[frozenset[int], frozenset[int]]] = {
    **dict.fromkeys(("BiasGelu", "FastGelu", "Gelu", "QuickGelu", "RotaryEmbedding"), _ALL),
    **dict.fromkeys(("FusedMatMul", "GatherBlockQuantized", "MatMulBnb4", "MatMulNBits", "MoE"), _ALL),
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
    """The inputs and outputs of a node that have the same 16-bit type."""

    inputs: frozenset[int] = frozenset()
    outputs: frozenset[int] = frozenset()


def half_ports(node: Node, opset: int, half: Half) -> HalfPorts:
    """Return the ports of type ``half`` if ``node`` computes in it; empty if unsupported.

    Args:
        node: A node of an ONNX graph.
        opset: Version of the default ONNX operator set that the model imports.
        half: The type.
    """
    native = node.native
    if node.op == "Convert":
        return HalfPorts(frozenset({0}), frozenset({0}))
    if not isinstance(native, onnx.NodeProto) or any(entry.HasField("g") for entry in native.attribute):
        return HalfPorts()
    is_onnx = native.domain in ONNX_DOMAINS
    if is_onnx and onnx.defs.has(native.op_type, opset, ""):
        has_kernel = half != "bf16" or native.op_type in _BRAIN
        return _by_schema(node, onnx.defs.get_schema(native.op_type, opset, ""), half) if has_kernel else HalfPorts()
    if native.op_type not in _RUNTIME or not (is_onnx or native.domain == "com.microsoft"):
        return HalfPorts()
    fixed_inputs, fixed_outputs = _RUNTIME[native.op_type]
    inputs, outputs = range(len(native.input)), range(len(native.output))
    return HalfPorts(frozenset(inputs) - fixed_inputs, frozenset(outputs) - fixed_outputs)


def _by_schema(node: Node, schema: onnx.defs.OpSchema, half: Half) -> HalfPorts:
    allowed = {entry.type_param_str: set(entry.allowed_type_strs) for entry in schema.type_constraints}
    inputs, outputs = (
        [formal[min(port, len(formal) - 1)].type_str for port in range(count)]
        for formal, count in ((schema.inputs, len(node.native.input)), (schema.outputs, len(node.native.output)))
    )
    taken = {name for name in inputs if {_HALVES[half], _FLOAT} <= allowed.get(name, set())}
    made = taken
    if node.op == "DequantizeLinear" and inputs[1] in taken:
        # Without output_dtype the output has the type of the scale, a type parameter of its own since opset 23.
        made = {outputs[0]}
    return HalfPorts(
        frozenset(port for port, name in enumerate(inputs) if name in taken),
        frozenset(port for port, name in enumerate(outputs) if name in made),
    )
