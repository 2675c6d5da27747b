"""Gives an ONNX model fixed shapes; see the pass `make-static`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from graphpass.dialects.onnx.rewrite import NodeWriter, drop_dead, node_name
from graphpass.dialects.onnx.tensors import is_held
from graphpass.dialects.onnx.walk import ONNX_DOMAINS, bodies, captured, in_order, inferred, opset_of
from graphpass.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from graphpass.dialects.onnx.model import OnnxModel
    from graphpass.ir.cache import Cache

__all__ = ["make_static"]

#: Constants of up to this many elements are computed with: positions of a long past, not weights.
_FOLDED = 1 << 17

#: Types whose values are computed here. Other numbers are left to the runtime, which rounds in its own way.
_INTEGERS = frozenset({onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.BOOL})

#: Operators between the product that makes logits and their output.
_BEHIND_LOGITS = frozenset({"Add", "Cast", "Div", "Identity", "Mul", "Tanh"})


def make_static(model: OnnxModel, caches: Iterable[Cache], length: int, past: int) -> None:
    """Fix all shapes of ``model``, let presents hold new positions only, and logits the last one.

    What only told shapes is computed, so that no value is left whose size depends on an input.

    Args:
        model: What to edit.
        caches: Its caches.
        length: New tokens a run takes.
        past: Slots of the past.

    Raises:
        UnsupportedError: GP393, a dimension stays open, or a cache is not appended to by a Concat.
    """
    graph = model.proto.graph
    reads = {cache.read: cache for cache in caches}
    for cache in reads.values():
        if cache.kind == "kv":
            _return_new(graph, cache)
    _keep_last(model)
    given = {tensor.name for tensor in graph.initializer}
    for info in graph.input:
        if info.name in given:
            continue
        sizes = [1, past + length if info.name == "attention_mask" else length]
        cache_of_input = reads.get(info.name)
        for axis, dimension in enumerate(info.type.tensor_type.shape.dim):
            if dimension.HasField("dim_value"):
                continue
            if cache_of_input is not None:
                known = {cache_of_input.axes.batch: 1, cache_of_input.axes.sequence: past}
                size = known.get(axis) or _known(cache_of_input, axis)
            else:
                size = sizes[min(axis, 1)]
            dimension.dim_value = size
    for info in graph.output:
        info.type.tensor_type.ClearField("shape")
    del graph.value_info[:]
    while _fold_once(model.proto):
        pass
    drop_dead(graph)
    _tell_outputs(model.proto)


def _known(cache: Cache, axis: int) -> int:
    size = (cache.shape or ())[axis]
    if not isinstance(size, int):
        raise UnsupportedError(
            "GP393",
            f"dimension {axis} of cache {cache.name} is the symbol {size}, whose value is not known",
            "run lower-operators before, which tells it from the weights",
        )
    return size


def _return_new(graph: onnx.GraphProto, cache: Cache) -> None:
    """Let the present be what the Concat appends, instead of all that it makes."""
    makers = {name: node for node in graph.node for name in node.output}
    present = str(cache.write)
    concat, casts = makers[present], []
    while concat.op_type in {"Cast", "Identity"}:
        casts.append(concat)
        concat = makers[concat.input[0]]
    if concat.op_type != "Concat" or len(concat.input) != 2:
        raise UnsupportedError("GP393", f"cache {cache.name} is not appended to by a Concat, but {concat.op_type}")
    whole, new = f"{present}/whole", concat.input[1]
    for node in graph.node:
        node.input[:] = [whole if name == present else name for name in node.input]
        node.output[:] = [whole if name == present else name for name in node.output]
    for place, cast in enumerate(reversed(casts)):
        again = onnx.NodeProto()
        again.CopyFrom(cast)
        again.name = again.output[0] = f"{present}/new/{place}"
        again.input[0], new = new, again.output[0]
        graph.node.append(again)
    graph.node.append(helper.make_node("Identity", [new], [present], name=f"{present}/new"))


def _keep_last(model: OnnxModel) -> None:
    """Compute logits of the last position only: cut before the product with the vocabulary."""
    graph = model.proto.graph
    makers = {name: node for node in graph.node for name in node.output}
    outputs = [info.name for info in graph.output]
    node = makers["logits" if "logits" in outputs else outputs[0]]
    port = None
    while node.op_type in _BEHIND_LOGITS:
        # The other operand of an Add or Mul is a constant.
        port = next(
            place for place, name in enumerate(node.input) if name in makers and makers[name].op_type != "Constant"
        )
        if makers[node.input[port]].op_type not in _BEHIND_LOGITS | {"MatMul", "MatMulNBits"}:
            break
        node = makers[node.input[port]]
    if node.op_type not in _BEHIND_LOGITS | {"MatMul", "MatMulNBits"}:
        raise UnsupportedError("GP393", f"logits are made by {node.op_type} {node_name(node)}, and not by a product")
    place = port if node.op_type in _BEHIND_LOGITS and port is not None else 0
    opset = opset_of(model.proto)
    writer = NodeWriter("last_position", opset)
    node.input[place] = writer.slice(node.input[place], -1, None, 1, label="hidden")
    nodes = in_order([*graph.node, *writer.nodes], set())
    del graph.node[:]
    graph.node.extend(nodes)


def _fold_once(proto: onnx.ModelProto) -> bool:
    """Compute what depends on constants and known shapes alone; whether there was anything."""
    graph = proto.graph
    told = inferred(proto).graph
    shapes = _shapes(told)
    integers = {
        info.name
        for info in (*told.value_info, *told.output, *told.input)
        if info.type.tensor_type.elem_type in _INTEGERS
    }
    values = {tensor.name: tensor for tensor in graph.initializer if is_held(tensor, _FOLDED)}
    known = set(values)
    folded: list[onnx.NodeProto] = []
    for node in in_order(graph.node, set()):
        is_shape = node.op_type == "Shape" and shapes.get(node.input[0]) is not None
        is_known = _holds_little(node) or (
            node.domain in ONNX_DOMAINS
            and not bodies(node)
            and not node.op_type.startswith("Random")
            and bool(node.input)
            and all(not name or name in known for name in node.input)
            and all(name in integers and _is_small(shapes.get(name)) for name in node.output)
        )
        if is_shape or is_known:
            folded.append(node)
            known.update(node.output)
    gone = {id(node) for node in folded if node.op_type != "Constant"}
    kept = [node for node in graph.node if id(node) not in gone]
    wanted = sorted(
        {name for node in kept for name in (*node.input, *captured(node)) if name in known}
        & {name for node in folded if id(node) in gone for name in node.output}
    )
    if not wanted:
        return False
    made = _evaluate(proto, folded, values, shapes, wanted)
    graph.initializer.extend(made)
    del graph.node[:]
    graph.node.extend(kept)
    return True


def _holds_little(node: onnx.NodeProto) -> bool:
    return node.op_type == "Constant" and all(is_held(attribute.t, _FOLDED) for attribute in node.attribute)


def _evaluate(
    proto: onnx.ModelProto,
    nodes: list[onnx.NodeProto],
    values: dict[str, onnx.TensorProto],
    shapes: dict[str, tuple[int, ...] | None],
    wanted: list[str],
) -> list[onnx.TensorProto]:
    """The values of ``wanted``."""
    written, inputs = [], set()
    for node in nodes:
        shape = shapes.get(node.input[0]) if node.op_type == "Shape" else None
        if shape is not None:
            given = {attribute.name: attribute.i for attribute in node.attribute}
            part = numpy.array(shape[given.get("start", 0) : given.get("end")], numpy.int64)
            node = helper.make_node("Constant", [], node.output, value=numpy_helper.from_array(part))
        written.append(node)
        inputs.update(node.input)
    body = helper.make_graph(
        written,
        "folded",
        [],
        [helper.make_empty_tensor_value_info(name) for name in wanted],
        [values[name] for name in sorted(inputs & set(values))],
    )
    model = helper.make_model(body, opset_imports=proto.opset_import, ir_version=proto.ir_version)
    results = ReferenceEvaluator(model).run(None, {})
    return [numpy_helper.from_array(numpy.asarray(value), name) for name, value in zip(wanted, results, strict=True)]


def _shapes(graph: onnx.GraphProto) -> dict[str, tuple[int, ...] | None]:
    """The shapes that are known to the last dimension."""
    found: dict[str, tuple[int, ...] | None] = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for info in (*graph.input, *graph.value_info, *graph.output):
        kind = info.type.tensor_type
        if kind.HasField("shape"):
            sizes = [dimension.dim_value for dimension in kind.shape.dim if dimension.HasField("dim_value")]
            found[info.name] = tuple(sizes) if len(sizes) == len(kind.shape.dim) else None
    return found


def _is_small(shape: tuple[int, ...] | None) -> bool:
    return shape is not None and int(numpy.prod(shape, dtype=numpy.int64)) <= _FOLDED


def _tell_outputs(proto: onnx.ModelProto) -> None:
    """Declare the outputs' shapes, and check that all others are known, too.

    Raises:
        UnsupportedError: GP393.
    """
    graph = proto.graph
    known = inferred(proto).graph
    shapes = _shapes(known)
    for node in graph.node:
        for name in node.output:
            if name and shapes.get(name) is None:
                raise UnsupportedError(
                    "GP393",
                    f"the size of {name}, which {node.op_type} {node_name(node)} makes, stays open",
                    "its size depends on values, not on the shapes of inputs; of experts it does not in an IR, "
                    "where passes let each compute all tokens: graphpass split --to openvino",
                )
    for info in graph.output:
        shape = info.type.tensor_type.shape
        shape.SetInParent()
        for size in shapes[info.name] or ():
            shape.dim.add(dim_value=size)
