"""Operators that HTP runs under ONNX Runtime, by element type.

Each entry was tested with a model of one operator on the emulated HTP of onnxruntime-qnn 2.7.0 with onnxruntime 1.32.0;
``tests/targets/qnn/test_operators.py`` repeats the tests. ONNX Runtime folds operators that read only constants.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphpass.analysis.symbolic.folding import fold_scalar
from graphpass.ir.graph import Graph, Node, Use, Value
from graphpass.ir.operators import COMPARISONS, MOVES, SCATTERS, SOURCES

_FLOATS = frozenset({"f16", "f32"})
_WHOLE = frozenset({"i32", "i64"})
_NUMBERS = _FLOATS | _WHOLE
_ALL = _NUMBERS | {"boolean"}
_OF_16_BITS = frozenset({"i16", "u16"})

_TYPES: dict[str, frozenset[str]] = {
    **dict.fromkeys(
        ("Abs", "Add", "ArgMax", "Clip", "CumSum", "Divide", "Equal", "Maximum", "Minimum", "Multiply", "ReduceMax",
         "ReduceMin", "ReduceSum", "Select", "Subtract", "TopK", *COMPARISONS),
        _NUMBERS,
    ),
    **dict.fromkeys(
        ("Broadcast", "Concat", "Convert", "Flatten", "Gather", "GatherElements", "Identity", "Reshape",
         "ScatterNDUpdate", "Slice", "Squeeze", "Tile", "Unsqueeze", "VariadicSplit"),
        _ALL,
    ),
    **dict.fromkeys(
        ("Attention", "Ceiling", "Conv", "Cos", "Einsum", "Elu", "Exp", "Floor", "Gelu", "Gemm", "HSwish",
         "HardSigmoid", "IsNaN", "LayerNormalization", "LeakyRelu", "Log", "LogSoftmax", "MatMul", "Negative", "Pad",
         "Power", "QuickGelu", "RMSNormalization", "Reciprocal", "ReduceL2", "ReduceMean", "RotaryEmbedding", "Round",
         "Sigmoid", "Sign", "SimplifiedLayerNormalization", "Sin", "SoftPlus", "Softmax", "Sqrt", "Swish", "Tanh"),
        _FLOATS,
    ),
    **dict.fromkeys(("LogicalAnd", "LogicalNot", "LogicalOr", "LogicalXor"), frozenset({"boolean"})),
    "FastGelu": frozenset({"f16"}),
    "GatherND": _FLOATS | {"i32"},
    "Mod": _WHOLE,
    "Relu": _FLOATS | {"i64"},
    "ScatterElementsUpdate": _NUMBERS,
    "Transpose": _FLOATS | {"i32", "boolean"},
}  # fmt: skip

#: Converts that HTP does not run, by source and target type.
_CASTS_LEFT = frozenset({("f32", "i64"), ("f16", "i64"), ("f16", "boolean"), ("boolean", "i64")})

#: Largest rank of operands, and operators with a limit of one less.
_AXES = 5
_OF_FOUR_AXES = frozenset({
    "ArgMax", "Ceiling", "Cos", "CumSum", "Elu", "Floor", "HSwish", "HardSigmoid", "LayerNormalization", "Log",
    "LogSoftmax", "Maximum", "Minimum", "Mod", "Negative", "RMSNormalization", "ReduceL2", "Round",
    "ScatterElementsUpdate", "Sign", "SimplifiedLayerNormalization", "Sin", "Sqrt", "Tanh", "TopK",
})  # fmt: skip

#: Smallest row size with wrong cumulative sums: wrong for 64 and 257 elements, right for 16.
_WIDE = 64

#: Reductions of scatters that HTP supports; those of ScatterElements only for integers.
_REDUCTIONS = {"ScatterElementsUpdate": ("sum", "prod", "max"), "ScatterNDUpdate": ("sum", "prod")}

#: Operators without a type limit: ONNX Runtime folds ShapeOf; QuantizeLinear and DequantizeLinear annotate types.
_UNTYPED = frozenset({"Constant", "DequantizeLinear", "QuantizeLinear", "Result", "ShapeOf"}) | SOURCES


def computed_nodes(graph: Graph) -> frozenset[int]:
    """Return the indices of the nodes downstream of an input of the model."""
    pasts = [node.outputs[0] for node in graph.of_op(*SOURCES)]
    return frozenset(use.node.index for use in graph.forward(pasts, _computed_by))


def _computed_by(use: Use) -> tuple[Value, ...]:
    """Return the outputs that depend on the elements of the used value."""
    return () if use.node.op == "ShapeOf" else use.node.outputs


def why_on_cpu(graph: Graph, node: Node) -> str | None:
    """Return the reason if HTP does not run a node; ``None`` if it does.

    Args:
        graph: The graph of the node.
        node: One of the `computed_nodes`.
    """
    if node.op in {"Gather", "GatherND"} and _takes_matrices(graph, node):
        return "it gathers matrices of a product, as for experts, which crashes or computes wrong outputs"
    if node.op in _UNTYPED:
        return None
    if node.op == "Erf":
        return None if _is_in_gelu(graph, node) else "no builder of the provider supports it outside of a Gelu"
    if node.op == "Reciprocal" and _is_in_norm(graph, node):
        return "its compiler ends with error 1002 if a norm multiplies by the Reciprocal of a Sqrt: run lower-for-htp"
    types = _TYPES.get(node.op)
    if node.op == "Trilu":
        return "no builder of the provider supports it: run lower-for-htp"
    if types is None:
        return "no builder of the provider supports it"
    kind = node.source(1 if node.op == "Select" else 0).element_type
    if kind not in types:
        return f"its operand is of type {kind}"
    result = node.outputs[0].element_type
    if node.op == "Convert" and (kind, result) in _CASTS_LEFT:
        remedy = ": run lower-for-htp" if (kind, result) == ("f16", "boolean") else ""
        return f"it converts {kind} to {result}{remedy}"
    if any(0 in (value.shape or ()) for value in node.outputs):
        return "its result is empty"
    return _why_not_in_form(graph, node, kind)


def why_wrong(node: Node) -> str | None:
    """Return why HTP computes wrong outputs for a node; ``None`` if it does not.

    Tested with random inputs, by ``tests/targets/qnn/test_operators.py``.
    """
    source = node.source() if node.inputs else None
    shape = [size for size in (source.shape or () if source is not None else ()) if isinstance(size, int)]
    if source is None or not shape:
        return None
    if node.op == "Mod" and source.element_type in _WHOLE:
        return "the remainder of a multiple is the divisor on HTP, not 0"
    is_inner = node.attributes.get("axis") != len(shape) - 1
    if node.op == "CumSum" and source.element_type == "i32" and is_inner and shape[-1] >= _WIDE:
        return f"sums of i32 along another axis than the last are wrong for rows of {_WIDE} elements or more"
    return None


def products_in_8_bits(graph: Graph) -> Iterator[Node]:
    """Yield products of two activations of 16 bits.

    HTP rounds the second to 8 bits, which causes errors of 1e-2 of the largest element.
    """
    for node in graph.of_op("MatMul"):
        makers = [graph.producer(value) for value in node.sources]
        rounded = [maker.source() for maker in makers if maker.op == "DequantizeLinear"]
        if len(rounded) == 2 and all(
            value.element_type in _OF_16_BITS and graph.producer(value).op != "Constant" for value in rounded
        ):
            yield node


def _why_not_in_form(graph: Graph, node: Node, kind: str) -> str | None:
    """Return why HTP does not run this form of an operator; ``None`` if it does."""
    axes = max((value.rank or 0 for value in (*node.inputs, *node.outputs) if value is not None), default=0)
    if axes > _AXES or (axes == _AXES and node.op in _OF_FOUR_AXES):
        return f"it has {axes} axes" + (": run flatten-rows and lower-for-htp" if axes == _AXES else "")
    if node.op in SCATTERS:
        reduction = node.attributes.get("reduction")
        is_left = reduction not in _REDUCTIONS.get(node.op, ()) or (
            node.op == "ScatterElementsUpdate" and kind in _FLOATS
        )
        return f"it reduces by {reduction} in {kind}" if is_left and reduction is not None else None
    if node.op == "Einsum" and axes > 3:
        return "the builder supports few equations: run lower-einsum"
    if node.op == "Clip" and any(value and fold_scalar(graph, value) is None for value in node.inputs[1:]):
        return "its bounds are not constants"
    if node.op == "RotaryEmbedding" and node.source(1).element_type in _WHOLE:
        return "no builder of the provider supports com.microsoft's"
    return None


def _takes_matrices(graph: Graph, node: Node) -> bool:
    is_table = (node.source().rank or 0) > 2 and graph.producer(node.source()).op == "Constant"
    return is_table and "MatMul" in _readers(graph, node)


def _readers(graph: Graph, node: Node) -> set[str]:
    """Return the operators that read the node's outputs, also through layout operators."""
    uses = graph.forward(node.outputs, lambda use: use.node.outputs if use.node.op in MOVES else ())
    return {use.node.op for use in uses}


def _is_in_gelu(graph: Graph, node: Node) -> bool:
    """Return whether ``1 + Erf(x)`` follows, which ONNX Runtime fuses to Gelu before the provider runs."""
    return any(
        use.node.op == "Add" and any(value is not None and fold_scalar(graph, value) == 1 for value in use.node.inputs)
        for use in graph.uses(node.outputs[0])
    )


def _is_in_norm(graph: Graph, node: Node) -> bool:
    """Return whether a Reciprocal is part of an RMS norm."""
    root = graph.producer(node.source())
    total = graph.producer(root.source()) if root.op == "Sqrt" else root
    if total.op != "Add" or all(graph.producer(value).op != "ReduceMean" for value in total.sources):
        return False
    return any(use.node.op == "Multiply" for use in graph.uses(node.outputs[0]))
