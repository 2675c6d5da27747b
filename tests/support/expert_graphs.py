"""Layers of experts as exporters write them, and variants that they might."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

import graphpass
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.ir.model import Model
from graphpass.testing import parse_model
from support.compressed_weights import packed, rounded
from support.graph_builder import GraphBuilder

HIDDEN, INNER, EXPERTS, CHOSEN = 8, 6, 4, 2

_KINDS = {numpy.float16: "f16", numpy.float32: "f32", numpy.float64: "f64"}


class Layer(GraphBuilder):
    """One layer in the making, on tokens ``x [batch, length, hidden]``."""

    def __init__(
        self,
        *,
        count: int = EXPERTS,
        chosen: int = CHOSEN,
        hidden: int = HIDDEN,
        inner: int = INNER,
        order: Sequence[int] | None = None,
        dtype: Any = numpy.float32,
    ) -> None:
        super().__init__(opset=18, dtype=dtype)
        self.count, self.chosen, self.hidden, self.inner = count, chosen, hidden, inner
        self.order = range(count) if order is None else order
        self.input("x", ["batch", "length", hidden], _KINDS[dtype])

    def zeros(self, shape: str) -> str:
        """Zeros of a shape."""
        return self.op("ConstantOfShape", shape, value=numpy_helper.from_array(numpy.zeros(1, self.dtype)))


def _router(layer: Layer, rows: str, kind: str) -> tuple[str, str]:
    """Return weights and chosen experts, ``[tokens, k]``."""
    scores = layer.op("MatMul", rows, layer.weight(layer.hidden, layer.count), name="logits")
    count = layer.ints(layer.chosen)
    if kind == "softmax last":
        top, chosen = layer.op("TopK", scores, count, outputs=2)
        return layer.op("Softmax", top, axis=-1), chosen
    function = {"sigmoid": "Sigmoid", "signed": "Tanh"}.get(kind)
    probabilities = layer.op(function, scores) if function else layer.op("Softmax", scores, axis=-1)
    top, chosen = layer.op("TopK", probabilities, count, outputs=2)
    if kind == "gathered":
        top = layer.op("GatherElements", probabilities, chosen, axis=1)
    if kind in {"softmax first", "sigmoid", "gathered", "signed"}:
        total = layer.op("ReduceSum", top, layer.ints(-1), keepdims=1)
        if kind != "softmax first":
            total = layer.op("Add", total, layer.number(1e-20))
        top = layer.op("Div", top, total)
    return (layer.op("Mul", top, layer.number(2.5)) if kind == "sigmoid" else top), chosen


def _activated(layer: Layer, gate: str, up: str | None, kind: str) -> str:
    if kind == "clamped":
        gate = layer.op("Clip", gate, "", layer.number(1.5))
        assert up is not None
        up = layer.op("Clip", up, layer.number(-1.5), layer.number(1.5))
        turned = layer.op("Mul", gate, layer.op("Sigmoid", layer.op("Mul", gate, layer.number(1.702))))
        return layer.op("Mul", layer.op("Add", up, layer.number(1.0)), turned)
    if kind == "gelu":  # by Erf
        error = layer.op("Erf", layer.op("Div", gate, layer.number(2**0.5)))
        half = layer.op("Mul", gate, layer.number(0.5))
        turned = layer.op("Mul", half, layer.op("Add", error, layer.number(1.0)))
    elif kind == "relu":
        turned = layer.op("Relu", gate)
    else:
        turned = layer.op("Mul", gate, layer.op("Sigmoid", gate))
    return turned if up is None else layer.op("Mul", turned, up)


def _parts(layer: Layer, value: str, columns: str, axis: int) -> tuple[str, str]:
    """Return gate and linear part of a joined product."""
    if columns == "pairs":
        bounds = ((0, 2**62, 2), (1, 2**62, 2))
        gate, up = (
            layer.op("Slice", value, *(layer.ints(number) for number in (start, stop, axis, step)))
            for start, stop, step in bounds
        )
        return gate, up
    gate, up = layer.op("Split", value, axis=axis, num_outputs=2, outputs=2)
    return (up, gate) if columns == "linear part first" else (gate, up)


def _expert(
    layer: Layer, rows: str, product: Callable[[str, int, int], str], columns: str, kind: str, axis: int
) -> str:
    if columns == "one":
        return product(
            _activated(layer, product(rows, layer.hidden, layer.inner), None, kind), layer.inner, layer.hidden
        )
    if columns == "apart":
        gate, up = product(rows, layer.hidden, layer.inner), product(rows, layer.hidden, layer.inner)
    else:
        gate, up = _parts(layer, product(rows, layer.hidden, 2 * layer.inner), columns, axis)
    return product(_activated(layer, gate, up, kind), layer.inner, layer.hidden)


def experts(
    form: str,
    router: str = "softmax first",
    columns: str = "apart",
    kind: str = "silu",
    *,
    bias: bool = False,
    turned: bool = False,
    **sizes: Any,
) -> OnnxModel:
    """Build a layer.

    Args:
        form: ``separate``, ``sorted``, ``dense`` or ``gathered``.
        router: ``softmax first``, ``softmax last``, ``plain``, ``gathered``, ``sigmoid`` or ``signed``.
        columns: Gate and linear part ``apart``, in ``pairs``, ``halves``, ``linear part first``, or ``one`` product.
        kind: ``silu``, ``clamped``, ``gelu``, ``relu``.
        bias: Whether products have a bias.
        turned: Whether weights are stored as ``[outputs, inputs]``.
        sizes: ``dtype``; sizes ``count`` (of experts), ``chosen``, ``hidden`` and ``inner``; ``order`` in which the
            separate form adds its experts.
    """
    layer = Layer(**sizes)
    rows = layer.op("Reshape", "x", layer.ints(-1, layer.hidden), name="rows")
    weights, chosen = _router(layer, rows, router)
    write = {"separate": _separate, "sorted": _sorted, "dense": _dense, "gathered": _gathered}[form]
    total = write(layer, rows, weights, chosen, columns, kind, bias, turned)
    total = layer.op("Reshape", total, layer.op("Shape", "x"), name="total")
    layer.output(total, "y", ["batch", "length", layer.hidden], _KINDS[layer.dtype])
    return layer.model()


def _separate(
    layer: Layer, rows: str, weights: str, chosen: str, columns: str, kind: str, bias: bool, turned: bool
) -> str:
    def product(value: str, inputs: int, outputs: int) -> str:
        shape = (outputs, inputs) if turned else (inputs, outputs)
        weight = layer.weight(*shape)
        weight = layer.op("Transpose", weight, perm=[1, 0]) if turned else weight
        result = layer.op("MatMul", value, weight)
        return layer.op("Add", result, layer.weight(outputs)) if bias else result

    marks = layer.op(
        "OneHot", chosen, layer.constant(numpy.int64(layer.count)), layer.ints(0, 1), axis=-1, name="marks"
    )
    marks = layer.op("Transpose", marks, perm=[2, 1, 0])
    flat = layer.op("Reshape", weights, layer.ints(-1, 1))
    total = layer.zeros(layer.op("Shape", rows))
    for number in layer.order:
        places = layer.op("NonZero", layer.op("Gather", marks, layer.constant(numpy.int64(number)), axis=0))
        slot, token = layer.op("Split", places, axis=0, num_outputs=2, outputs=2)
        slot, token = (layer.op("Squeeze", index, layer.ints(0)) for index in (slot, token))
        result = _expert(layer, layer.op("Gather", rows, token, axis=0), product, columns, kind, 1)
        place = layer.op("Add", slot, layer.op("Mul", token, layer.constant(numpy.int64(layer.chosen))))
        weighted = layer.op("Mul", result, layer.op("Gather", flat, place, axis=0))
        index = layer.op("Expand", layer.op("Unsqueeze", token, layer.ints(1)), layer.op("Shape", weighted))
        total = layer.op("ScatterElements", total, index, weighted, axis=0, reduction="add")
    return total


def _sorted(
    layer: Layer, rows: str, weights: str, chosen: str, columns: str, kind: str, bias: bool, turned: bool
) -> str:
    marks = layer.zeros(layer.op("Shape", "logits"))
    ones = layer.op("Expand", layer.number(1.0), layer.op("Shape", chosen))
    marks = layer.op("Cast", layer.op("ScatterElements", marks, chosen, ones, axis=1), to=TensorProto.INT64)
    counts = layer.op("ReduceSum", marks, layer.ints(0), keepdims=0)
    flat = layer.op("Reshape", chosen, layer.ints(-1))
    _, order = layer.op("TopK", flat, layer.op("Shape", flat), largest=0, axis=0, outputs=2)
    token = layer.op("Div", order, layer.constant(numpy.int64(layer.chosen)))
    ends = [layer.ints(0)]
    for number in range(layer.count):
        own = layer.op("Gather", counts, layer.ints(number), axis=0)
        ends.append(layer.op("Add", ends[-1], own))

    def product(value: str, inputs: int, outputs: int) -> str:
        pieces = []
        for number in range(layer.count):
            own = layer.op("Slice", value, ends[number], ends[number + 1], layer.ints(0), layer.ints(1))
            weight = layer.weight(*((outputs, inputs) if turned else (inputs, outputs)))
            weight = layer.op("Transpose", weight, perm=[1, 0]) if turned else weight
            pieces.append(layer.op("MatMul", own, weight))
        joined = layer.op("Concat", *pieces, axis=0)
        return layer.op("Add", joined, layer.weight(outputs)) if bias else joined

    result = _expert(layer, layer.op("Gather", rows, token, axis=0), product, columns, kind, 1)
    flat_weights = layer.op("Reshape", weights, layer.ints(-1))
    column = layer.op("Unsqueeze", layer.op("Gather", flat_weights, order, axis=0), layer.ints(1))
    weighted = layer.op("Mul", result, column)
    index = layer.op("Expand", layer.op("Unsqueeze", token, layer.ints(1)), layer.op("Shape", weighted))
    total = layer.zeros(layer.op("Shape", rows))
    return layer.op("ScatterElements", total, index, weighted, axis=0, reduction="add")


def _dense(
    layer: Layer, rows: str, weights: str, chosen: str, columns: str, kind: str, bias: bool, turned: bool
) -> str:
    def product(value: str, inputs: int, outputs: int) -> str:
        shape = (layer.count, outputs, inputs) if turned else (layer.count, inputs, outputs)
        weight = layer.weight(*shape)
        weight = layer.op("Transpose", weight, perm=[0, 2, 1]) if turned else weight
        result = layer.op("MatMul", value, weight)
        return layer.op("Add", result, layer.weight(layer.count, 1, outputs)) if bias else result

    none = layer.zeros(layer.op("Shape", "logits"))
    gates = layer.op("ScatterElements", none, chosen, weights, axis=1, name="gates")
    gates = layer.op("Unsqueeze", layer.op("Transpose", gates, perm=[1, 0]), layer.ints(2))
    copies = layer.op("Expand", layer.op("Unsqueeze", rows, layer.ints(0)), layer.ints(layer.count, 1, 1))
    result = _expert(layer, copies, product, columns, kind, 2)
    return layer.op("ReduceSum", layer.op("Mul", result, gates), layer.ints(0), keepdims=0)


def _gathered(
    layer: Layer, rows: str, weights: str, chosen: str, columns: str, kind: str, bias: bool, turned: bool
) -> str:
    flat = layer.op("Reshape", chosen, layer.ints(-1))
    index = layer.op("Unsqueeze", flat, layer.ints(-1))

    def product(value: str, inputs: int, outputs: int) -> str:
        shape = (layer.count, outputs, inputs) if turned else (layer.count, inputs, outputs)
        own = layer.op("GatherND", layer.weight(*shape), index)
        axis = layer.ints(-1 if turned else 1)
        value = layer.op("Unsqueeze", value, axis)
        result = layer.op("Squeeze", layer.op("MatMul", *((own, value) if turned else (value, own))), axis)
        table = layer.weight(layer.count, outputs) if bias else ""
        return layer.op("Add", result, layer.op("Gather", table, flat, axis=0)) if bias else result

    pairs = layer.op("Unsqueeze", rows, layer.ints(1))
    pairs = layer.op("Reshape", layer.op("Expand", pairs, layer.ints(1, layer.chosen, 1)), layer.ints(-1, layer.hidden))
    result = _expert(layer, pairs, product, columns, kind, 1)
    column = layer.op("Unsqueeze", layer.op("Reshape", weights, layer.ints(-1)), layer.ints(-1))
    weighted = layer.op("Mul", result, column)
    whole = layer.op("Reshape", weighted, layer.ints(-1, layer.chosen, layer.hidden))
    return layer.op("ReduceSum", whole, layer.ints(1), keepdims=0)


def changed(old: str, new: str, *form: str, **options: Any) -> Model:
    """Build a layer of `experts` in whose text ``new`` replaces ``old``."""
    text = re.sub(r"(?<=[)}]) : .*", "", graphpass.text(experts(*form, **options)))
    assert old in text
    return parse_model(text.replace(old, new))


def quantized(model: OnnxModel, stored: str, block: int, *, zeros: bool, turned: bool = False) -> OnnxModel:
    """Return a layer whose experts' weights are stored in blocks of their inputs.

    Args:
        model: Of `experts`.
        stored: ``int4``, ``uint4``, ``int8``, ``uint8`` for DequantizeLinear; ``nbits4`` or ``nbits8`` for MatMulNBits,
            if the form is separate.
        block: Inputs of a block.
        zeros: Whether blocks have zero points.
        turned: As given to `experts`.
    """
    is_packed, bits = stored.startswith("nbits"), int(stored[-1])
    is_signed, code = stored.startswith("int"), 0 if is_packed else getattr(TensorProto, stored.upper())
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    kept, added, nodes = [], [], []
    is_separate = any(node.op_type == "NonZero" for node in proto.graph.node)
    rank = 2 if is_separate else 3
    routed = {name for node in proto.graph.node if node.name == "logits" for name in node.input}
    for tensor in proto.graph.initializer:
        weight = numpy_helper.to_array(tensor)
        if weight.dtype.kind != "f" or weight.ndim < rank or tensor.name in routed or weight.shape[-2] == 1:
            kept.append(tensor)
            continue
        rows = weight if turned else numpy.swapaxes(weight, -1, -2)
        groups = rows.reshape(*rows.shape[:-1], -1, block)
        middle = 2 ** (bits - 1) if zeros and not is_signed else 0
        numbers, scales, points = rounded(groups, bits, middle)
        if zeros and is_signed:
            points = points + 1
        if not zeros and stored.startswith(("u", "nbits")):
            # No zero points: 0 for DequantizeLinear, the middle for MatMulNBits.
            numbers = numbers + (2 ** (bits - 1) if is_packed else 0)
            numbers = numbers if is_packed else numpy.abs(numbers)
        numbers, scales, points = numbers.reshape(rows.shape), scales[..., 0], points[..., 0]
        parts = {"stored": numbers, "scales": scales} | ({"zeros": points} if zeros else {})
        if not turned and not is_packed:
            parts = {name: numpy.swapaxes(array, -1, -2) for name, array in parts.items()}
        names = [f"{tensor.name}_{name}" for name in parts]
        for name, (part, array) in zip(names, parts.items(), strict=True):
            if part == "scales":
                added.append(numpy_helper.from_array(numpy.ascontiguousarray(array), name))
            elif is_packed:
                even = numpy.pad(array, [(0, 0), (0, array.shape[-1] % 2 if bits == 4 else 0)])
                raw = numpy.frombuffer(packed(even, bits), numpy.uint8)
                shape = (rows.shape[0], -1, block * bits // 8) if part == "stored" else (-1,)
                added.append(numpy_helper.from_array(raw.reshape(shape), name))
            else:
                added.append(helper.make_tensor(name, code, array.shape, packed(array, bits), raw=True))
        if not is_packed:
            axis = rows.ndim - 1 if turned else rows.ndim - 2
            nodes.append(helper.make_node("DequantizeLinear", names, [tensor.name], axis=axis, block_size=block))
            continue
        sizes = {"N": rows.shape[0], "K": rows.shape[1], "bits": bits, "block_size": block}
        for node in proto.graph.node:
            if node.op_type == "MatMul" and node.input[1] == tensor.name:
                node.op_type, node.domain, node.input[1:] = "MatMulNBits", "com.microsoft", names
                node.attribute.extend(helper.make_attribute(key, value) for key, value in sizes.items())
    graph = helper.make_graph(
        [*nodes, *proto.graph.node], "experts", proto.graph.input, proto.graph.output, [*kept, *added]
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return OnnxModel(helper.make_model(graph, opset_imports=opsets, ir_version=10))
