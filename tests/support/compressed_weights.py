"""Decoders whose weights are stored in 4 or 8 bits, as ONNX and as IR."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy
import onnx
import openvino
from onnx import helper, numpy_helper

GROUP = 32

#: ONNX element types of a stored weight: its name, its bits, its zero point.
_STORED = {
    "int8": (onnx.TensorProto.INT8, 8, 0),
    "uint8": (onnx.TensorProto.UINT8, 8, 128),
    "int4": (onnx.TensorProto.INT4, 4, 0),
    "uint4": (onnx.TensorProto.UINT4, 4, 8),
}


def rounded(weight: numpy.ndarray, bits: int, zero: int) -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]:
    """A weight ``[..., group]`` as whole numbers, and a scale and a zero point for each group.

    Zero points lie around ``zero``, each its own, unless that is 0.
    """
    scale = numpy.abs(weight).max(-1, keepdims=True) / (2 ** (bits - 1) - 1)
    zeros = numpy.full(scale.shape, zero)
    if zero:
        zeros += numpy.arange(scale.size).reshape(scale.shape) % 3 - 1
    lowest = 0 if zero else -(2 ** (bits - 1))
    numbers = numpy.clip(numpy.round(weight / scale) + zeros, lowest, lowest + 2**bits - 1)
    return numbers.astype(numpy.int16), scale.astype(weight.dtype), zeros


def packed(numbers: numpy.ndarray, bits: int) -> bytes:
    """Whole numbers as they are stored, the first of two in the low half of a byte."""
    flat = numbers.ravel().astype(numpy.int16) & (2**bits - 1)
    flat = numpy.pad(flat, (0, flat.size % 2 if bits == 4 else 0))
    return (flat if bits == 8 else flat[::2] | flat[1::2] << 4).astype(numpy.uint8).tobytes()


def with_matmul_nbits(source: Path, folder: Path, bits: int, *, zero_points: bool, **attributes: int) -> Path:
    """A copy of an ONNX model whose products with weights are com.microsoft MatMulNBits."""

    def write(node: onnx.NodeProto, weight: numpy.ndarray) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
        name, (rows, columns) = node.input[1], weight.shape
        groups = weight.T.reshape(columns, rows // GROUP, GROUP)
        numbers, scale, zeros = rounded(groups, bits, 2 ** (bits - 1))
        if not zero_points:
            numbers, zeros = rounded(groups, bits, 0)[0] + 2 ** (bits - 1), None
        stored = numpy.frombuffer(packed(numbers, bits), numpy.uint8).reshape(columns, rows // GROUP, -1)
        tensors = [
            numpy_helper.from_array(stored, f"{name}_stored"),
            numpy_helper.from_array(scale.reshape(-1), f"{name}_scale"),
        ]
        if zeros is not None:
            # Each row of zero points fills whole bytes.
            even = numpy.pad(zeros[:, :, 0], [(0, 0), (0, zeros.shape[1] % 2 if bits == 4 else 0)])
            tensors.append(numpy_helper.from_array(numpy.frombuffer(packed(even, bits), numpy.uint8), f"{name}_zero"))
        product = helper.make_node(
            "MatMulNBits",
            [node.input[0], *(tensor.name for tensor in tensors)],
            list(node.output),
            node.name,
            domain="com.microsoft",
            **{"K": rows, "N": columns, "bits": bits, "block_size": GROUP, **attributes},
        )
        return [product], tensors

    return _rewritten(source, folder, write)


def with_dequantize_linear(
    source: Path, folder: Path, stored: str, *, blocks: bool, outputs_first: bool = False
) -> Path:
    """A copy of an ONNX model whose products take their weights from DequantizeLinear.

    Args:
        source: The ONNX model.
        folder: Where to write.
        stored: ``"int8"``, ``"uint8"``, ``"int4"`` or ``"uint4"``.
        blocks: Whether each group of rows has a scale, or each column.
        outputs_first: Whether weights in blocks are ``[outputs, inputs]``, and tables of embeddings stored likewise.
    """
    code, bits, zero = _STORED[stored]

    def rows_first(node: onnx.NodeProto, weight: numpy.ndarray) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
        name = node.input[0 if node.op_type == "Gather" else 1]
        matrix = weight if node.op_type == "Gather" else weight.T
        numbers, scale, zeros = rounded(matrix.reshape(len(matrix), -1, GROUP), bits, zero)
        tensors = [
            helper.make_tensor(f"{name}_stored", code, matrix.shape, packed(numbers, bits), raw=True),
            numpy_helper.from_array(numpy.ascontiguousarray(scale[:, :, 0]), f"{name}_scale"),
        ]
        if zero:
            shape, points = zeros.shape[:2], packed(zeros, bits)
            tensors.append(helper.make_tensor(f"{name}_zero", code, shape, points, raw=True))
        names, how = [tensor.name for tensor in tensors], {"axis": 1, "block_size": GROUP}
        widened = [helper.make_node("DequantizeLinear", names, [f"{name}_wide"], **how)]
        if node.op_type == "Gather":
            read = helper.make_node("Gather", [f"{name}_wide", node.input[1]], list(node.output), node.name)
            return [*widened, read], tensors
        widened.append(helper.make_node("Transpose", [f"{name}_wide"], [f"{name}_turned"], perm=[1, 0]))
        product = helper.make_node("MatMul", [node.input[0], f"{name}_turned"], list(node.output), node.name)
        return [*widened, product], tensors

    if outputs_first:
        return _rewritten(source, folder, rows_first, tables=True)

    def write(node: onnx.NodeProto, weight: numpy.ndarray) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
        name, (rows, columns) = node.input[1], weight.shape
        groups = weight.T.reshape(columns, -1, GROUP if blocks else rows)
        numbers, scale, zeros = rounded(groups, bits, zero)
        scale, zeros = (array[:, :, 0].T if blocks else array.ravel() for array in (scale, zeros))
        turned = numbers.reshape(columns, rows).T
        tensors = [
            helper.make_tensor(f"{name}_stored", code, turned.shape, packed(turned, bits), raw=True),
            numpy_helper.from_array(numpy.ascontiguousarray(scale), f"{name}_scale"),
        ]
        if zero:
            points = packed(zeros, bits)
            tensors.append(helper.make_tensor(f"{name}_zero", code, zeros.shape, points, raw=True))
        how = {"axis": 0, "block_size": GROUP} if blocks else {"axis": 1}
        widened = helper.make_node("DequantizeLinear", [tensor.name for tensor in tensors], [f"{name}_wide"], **how)
        product = helper.make_node("MatMul", [node.input[0], f"{name}_wide"], list(node.output), node.name)
        return [widened, product], tensors

    return _rewritten(source, folder, write)


def whole_numbers(numbers: numpy.ndarray, stored: str) -> openvino.op.Constant:
    """A constant of 4 or 8 bits, which owns its memory: one made over an array would not keep that alive."""
    tensor = openvino.Tensor(getattr(openvino.Type, stored), openvino.Shape(numbers.shape))
    raw = tensor.data.view(numpy.uint8).reshape(-1)
    raw[:] = numpy.frombuffer(packed(numbers, int(stored[1])), numpy.uint8)
    return openvino.op.Constant(tensor)


def stored_bytes(model: onnx.ModelProto | openvino.Model) -> Counter[bytes]:
    """The bytes of every large weight of 4 or 8 bits, and how many have them."""
    return Counter(_openvino_bytes(model) if isinstance(model, openvino.Model) else _onnx_bytes(model))


def _onnx_bytes(proto: onnx.ModelProto) -> Iterable[bytes]:
    types = {onnx.TensorProto.DataType.Name(code).lower() for code, _, _ in _STORED.values()}
    for tensor in proto.graph.initializer:
        if onnx.TensorProto.DataType.Name(tensor.data_type).lower() in types and len(tensor.raw_data) > GROUP * GROUP:
            yield tensor.raw_data


def _openvino_bytes(model: openvino.Model) -> Iterable[bytes]:
    for op in model.get_ops():
        if op.get_type_name() != "Constant" or op.get_element_type().to_string() not in {"i8", "u8", "i4", "u4"}:
            continue
        if op.get_byte_size() > GROUP * GROUP:
            yield op.data.tobytes()


def _rewritten(
    source: Path,
    folder: Path,
    write: Callable[[onnx.NodeProto, numpy.ndarray], tuple[list[onnx.NodeProto], list[onnx.TensorProto]]],
    *,
    tables: bool = False,
) -> Path:
    proto = onnx.load(source)
    weights = {tensor.name: tensor for tensor in proto.graph.initializer}
    nodes, replaced = [], set()
    for node in proto.graph.node:
        name = (
            node.input[1] if node.op_type == "MatMul" else node.input[0] if tables and node.op_type == "Gather" else ""
        )
        is_whole = name in weights and (node.op_type == "Gather" or weights[name].dims[0] % GROUP == 0)
        if not is_whole or len(weights[name].dims) != 2:
            nodes.append(node)
            continue
        new_nodes, tensors = write(node, numpy_helper.to_array(weights[name]))
        nodes += new_nodes
        proto.graph.initializer.extend(tensors)
        replaced.add(name)
    kept = [tensor for tensor in proto.graph.initializer if tensor.name not in replaced]
    del proto.graph.node[:], proto.graph.initializer[:]
    proto.graph.node.extend(nodes)
    proto.graph.initializer.extend(kept)
    del proto.opset_import[:]
    proto.opset_import.extend([helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)])
    proto.ir_version = 10
    onnx.checker.check_model(proto)
    folder.mkdir(parents=True)
    onnx.save(proto, folder / "model.onnx")
    return folder / "model.onnx"
