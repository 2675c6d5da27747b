"""Small tools for passes that edit OpenVINO models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy
import openvino
from openvino import opset13

from graphpass.dialects.openvino.ports import port_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from graphpass.ir.graph import Value

__all__ = [
    "TOKEN_INPUTS",
    "add_input",
    "beam_gather",
    "drop_unread_input",
    "find_input",
    "find_output",
    "fold",
    "has_input",
    "input_length",
    "integers",
    "named",
    "output_of",
    "redirect",
    "scalar",
    "token_input",
]

#: What the input is called that holds the new tokens, or their embeddings.
TOKEN_INPUTS = ("input_ids", "inputs_embeds")

#: Operators whose outputs hold elements of their first input (Concat: of all inputs), chosen and placed by the others.
_MOVES_ELEMENTS = frozenset({"Broadcast", "Concat", "Convert", "Gather", "Reshape", "Slice", "Squeeze", "Unsqueeze"})

#: Operators whose value is not decided by their inputs.
_HAS_STATE = frozenset({"Assign", "Multinomial", "RandomUniform", "ReadValue"})

#: Element types that `fold` computes with.
_FOLDED_TYPES = frozenset(
    {"bf16", "boolean", "f16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"}
)

#: The largest constant that `fold` reads.
_FOLDED_ELEMENTS = 4096

#: The largest subgraph that `fold` walks: scales and shapes are small.
_FOLD_LIMIT = 64


def named(node: openvino.Node, name: str) -> openvino.Node:
    """``node``, called ``name``."""
    node.set_friendly_name(name)
    return node


def scalar(value: float, element_type: openvino.Type, name: str) -> openvino.Node:
    """A constant without dimensions."""
    return named(opset13.constant(value, dtype=element_type), name)


def integers(values: int | Iterable[int], name: str) -> openvino.Node:
    """An i64 constant: a scalar for an int, a vector for several."""
    return named(
        opset13.constant(numpy.array(values if isinstance(values, int) else list(values), dtype=numpy.int64)), name
    )


def output_of(graph: Any, value: Value) -> openvino.Output:
    """The native output behind a value of the neutral graph."""
    output: openvino.Output = graph.producer(value).native.output(value.port)
    return output


def redirect(old: openvino.Output, new: openvino.Output) -> int:
    """Let those who read ``old`` read ``new``, which gets no names by that; how many did.

    Outputs of the model stay, since they are named after what they read.
    """
    readers = [reader for reader in old.get_target_inputs() if reader.get_node().get_type_name() != "Result"]
    for reader in readers:
        reader.replace_source_output(new)
    return len(readers)


def add_input(model: openvino.Model, name: str, element_type: str, shape: list[int]) -> openvino.Node:
    """A new Parameter of ``model``; -1 stands for a dimension that is not fixed.

    A tensor inside that has the name already loses it.
    """
    for inner in (output for op in model.get_ops() for output in op.outputs()):
        if name in inner.get_names():
            inner.set_names(inner.get_names() - {name})
    parameter = named(opset13.parameter(openvino.PartialShape(shape), getattr(openvino.Type, element_type)), name)
    parameter.output(0).set_names({name})
    model.add_parameters([parameter])
    return parameter


def has_input(model: openvino.Model, name: str) -> bool:
    """Whether an input of ``model`` is called ``name``."""
    return any(port_name(port) == name or name in port.get_names() for port in model.inputs)


def find_input(model: openvino.Model, name: str) -> openvino.Node:
    """The Parameter called ``name``.

    Raises:
        KeyError: There is none.
    """
    return _find(model.inputs, name)


def find_output(model: openvino.Model, name: str) -> openvino.Node:
    """The Result called ``name``.

    Raises:
        KeyError: There is none.
    """
    return _find(model.outputs, name)


def token_input(model: openvino.Model) -> str | None:
    """The name of the input that holds the new tokens, or their embeddings; ``None`` where there is none."""
    return next((name for name in TOKEN_INPUTS if has_input(model, name)), None)


def input_length(model: openvino.Model, name: str, prefix: str) -> openvino.Node:
    """The second dimension of the input called ``name``, i64 [1].

    Args:
        model: What has the input.
        name: Of an input ``[batch, length, ..]``.
        prefix: How names of the new nodes begin.

    Raises:
        KeyError: There is none.
    """
    shape = named(opset13.shape_of(find_input(model, name), "i64"), f"{prefix}/shape")
    position, axis = integers([1], f"{prefix}/position"), integers(0, f"{prefix}/axis")
    return named(opset13.gather(shape, position, axis), f"{prefix}/length")


def _find(ports: list[openvino.Output], name: str) -> openvino.Node:
    for port in ports:
        if port_name(port) == name or name in port.get_names():
            node: openvino.Node = port.get_node()
            return node
    raise KeyError(name)


def drop_unread_input(model: openvino.Model, name: str) -> bool:
    """Take the Parameter called ``name`` out of ``model`` where there is one and nothing reads it; whether it went."""
    if not has_input(model, name):
        return False
    parameter = find_input(model, name)
    # Nodes that a rewrite left behind still count as readers until Python lets go of them.
    living = {node.get_name() for node in model.get_ops()}
    if any(reader.get_node().get_name() in living for reader in parameter.output(0).get_target_inputs()):
        return False
    model.remove_parameter(parameter)
    return True


def beam_gather(read: openvino.Node) -> openvino.Node | None:
    """The Gather that reorders what a ReadValue gives by the input ``beam_idx``; ``None`` where there is none."""
    for reader in read.output(0).get_target_inputs():
        node: openvino.Node = reader.get_node()
        if node.get_type_name() == "Gather" and reader.get_index() == 0:
            index = node.input_value(1).get_node()
            if index.get_type_name() == "Parameter" and "beam_idx" in index.output(0).get_names():
                return node
    return None


def fold(output: openvino.Output) -> numpy.ndarray | None:
    """The value of ``output`` where it depends on constants and known dimensions alone.

    Elements of a shape that are not known stay unknown; they may be moved, and dropped, but not computed with.

    Returns:
        The value, bf16 as f32; ``None`` where it depends on anything else, on more than 64 operators or on a constant
        of more than 4096 elements.
    """
    known: dict[tuple[str, int], tuple[numpy.ndarray, numpy.ndarray]] = {}
    pending = [output]
    while pending:
        current = pending[-1]
        node = current.get_node()
        needed = [] if node.get_type_name() in {"Constant", "ShapeOf"} else node.input_values()
        missing = [source for source in needed if _key(source) not in known]
        if missing:
            pending.extend(missing)
            if len(pending) > 8 * _FOLD_LIMIT:
                return None
            continue
        pending.pop()
        value = _evaluate(node, [known[_key(source)] for source in needed])
        if value is None or len(known) >= _FOLD_LIMIT:
            return None
        known[_key(current)] = value
    result, mask = known[_key(output)]
    return _readable(result, output.get_element_type()) if mask.all() else None


def _key(output: openvino.Output) -> tuple[str, int]:
    return output.get_node().get_name(), output.get_index()


def _evaluate(
    node: openvino.Node, inputs: list[tuple[numpy.ndarray, numpy.ndarray]]
) -> tuple[numpy.ndarray, numpy.ndarray] | None:
    """The value of ``node`` and which of its elements are known, from the same of its inputs.

    Values of bf16, which numpy does not know, are their bits as OpenVINO shows them: taken for f16.
    """
    kind = node.get_type_name()
    if kind in _HAS_STATE or any(port.get_element_type().to_string() not in _FOLDED_TYPES for port in node.outputs()):
        return None
    if kind == "Constant":
        return _constant(node)
    if kind == "ShapeOf":
        return _shape(node)
    if not inputs or node.get_output_size() != 1 or node.get_output_partial_shape(0).is_dynamic:
        return None
    values = [value for value, _ in inputs]
    if all(mask.all() for _, mask in inputs):
        value = _run(node, values)
        return None if value is None else (value, numpy.ones(value.shape, bool))
    moved = len(inputs) if kind == "Concat" else 1
    if kind not in _MOVES_ELEMENTS or not all(mask.all() for _, mask in inputs[moved:]):
        return None
    masks = [mask.astype(value.dtype) for value, mask in inputs[:moved]] + values[moved:]
    value, mask = _run(node, values), _run(node, masks)
    return None if value is None or mask is None else (value, mask.astype(bool))


def _constant(node: openvino.Node) -> tuple[numpy.ndarray, numpy.ndarray] | None:
    if numpy.prod(node.get_output_shape(0), dtype=numpy.int64) > _FOLDED_ELEMENTS:
        return None
    value = numpy.array(node.data)
    return value, numpy.ones(value.shape, bool)


def _shape(node: openvino.Node) -> tuple[numpy.ndarray, numpy.ndarray] | None:
    shape = node.input_value(0).get_partial_shape()
    if shape.rank.is_dynamic:
        return None
    dtype = node.get_output_element_type(0).to_dtype()
    value = numpy.array([dimension.get_length() if dimension.is_static else 0 for dimension in shape], dtype)
    return value, numpy.array([dimension.is_static for dimension in shape], bool)


def _run(node: openvino.Node, values: list[numpy.ndarray]) -> numpy.ndarray | None:
    result = openvino.Tensor(node.get_output_element_type(0), node.get_output_shape(0))
    sources = []
    for source, value in zip(node.input_values(), values, strict=True):
        tensor = openvino.Tensor(source.get_element_type(), list(value.shape))
        tensor.data[...] = value
        sources.append(tensor)
    try:
        evaluated = node.evaluate([result], sources)
    except RuntimeError:
        return None
    return numpy.array(result.data) if evaluated else None


def _readable(value: numpy.ndarray, element_type: openvino.Type) -> numpy.ndarray:
    """``value`` as f32 where it is the bits of bf16."""
    if element_type != openvino.Type.bf16:
        return value
    bits: numpy.ndarray = numpy.asarray(value.view(numpy.uint16), numpy.uint32) << 16
    return bits.view(numpy.float32)
