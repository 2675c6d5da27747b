"""Repair incorrect shape declarations of exporters."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from graphpass.dialects.onnx.tensors import graphs

#: Operators that keep the sizes of their first input, in any order.
_MOVES = frozenset({"Unsqueeze", "Transpose", "Identity", "Cast"})


def repair_shapes(proto: onnx.ModelProto) -> bool:
    """Repair sizes that are negative or text, and types that contradict an initializer.

    A negative size, which other formats have for a dynamic dimension, becomes a dimension without a size.

    transformers 5.23 declares the size 2 as the symbol ``"2"``, and keeps the value_info of a scalar that its fusions
    reshaped to ``[1]``. The type of an initializer follows from its data, so the declaration can be removed. A number
    as text is a size only if an input has it: optimum-onnx 0.1.0 uses ``"1"`` for a varying number of logits.

    onnxruntime-genai's builder (0.18) declares heads that it repeats after the past was added with the length of the
    new tokens. ONNX Runtime assigns buffers by symbols, and fails if sizes of one symbol differ. So the symbols of all
    intermediate tensors are removed.

    Returns:
        Whether anything was repaired.
    """
    repaired = False
    names = {dimension.dim_param for dimension in _dimensions(proto.graph.input) if _is_size(dimension.dim_param)}
    for graph in graphs(proto):
        if not isinstance(graph, onnx.GraphProto):
            continue
        for dimension in _dimensions((*graph.input, *graph.output, *graph.value_info)):
            if dimension.dim_param in names:
                dimension.dim_value = int(dimension.dim_param)
                repaired = True
            elif dimension.dim_value < 0:
                dimension.ClearField("dim_value")
                repaired = True
        types = {tensor.name: (tensor.data_type, list(tensor.dims)) for tensor in graph.initializer}
        wrong = [index for index, info in enumerate(graph.value_info) if _contradicts(info, types)]
        for index in reversed(wrong):
            del graph.value_info[index]
        repaired |= bool(wrong) | _remove_symbols(graph)
    return repaired


def _remove_symbols(graph: onnx.GraphProto) -> bool:
    """Remove symbols of intermediate tensors if an operator that moves dimensions renames one.

    Returns:
        Whether any was removed.
    """
    infos = (*graph.value_info, *graph.output, *graph.input)
    shapes = {info.name: _dimensions([info]) for info in infos}
    named = {name: {size.dim_param for size in shape if size.dim_param} for name, shape in shapes.items()}
    ports = {symbol for port in (*graph.input, *graph.output) for symbol in named[port.name]}

    def renames(node: onnx.NodeProto) -> bool:
        if node.op_type not in _MOVES or not (node.input and node.output):
            return False
        source, target = node.input[0], node.output[0]
        is_declared = bool(shapes.get(source)) and all(size.dim_param or size.dim_value for size in shapes[source])
        return is_declared and not named.get(target, set()) & ports <= named[source]

    if not any(map(renames, graph.node)):
        return False
    for dimension in _dimensions(graph.value_info):
        if dimension.dim_param:
            dimension.ClearField("dim_param")
    return True


def _dimensions(infos: Iterable[onnx.ValueInfoProto]) -> list[onnx.TensorShapeProto.Dimension]:
    return [dimension for info in infos for dimension in info.type.tensor_type.shape.dim]


def _is_size(text: str) -> bool:
    return text.isascii() and text.isdecimal() and int(text) > 0


def _contradicts(info: onnx.ValueInfoProto, types: dict[str, tuple[int, list[int]]]) -> bool:
    if info.name not in types or not info.type.HasField("tensor_type"):
        return False
    code, dims = types[info.name]
    kind = info.type.tensor_type
    sizes = kind.shape.dim
    fits = len(sizes) == len(dims) and all(
        dimension.dim_value == size
        for dimension, size in zip(sizes, dims, strict=True)
        if dimension.HasField("dim_value")
    )
    return kind.elem_type not in {0, code} or (kind.HasField("shape") and not fits)
