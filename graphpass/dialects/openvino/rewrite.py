"""Small tools for passes that edit OpenVINO models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy
import openvino
from openvino import opset13

from graphpass.dialects.openvino.graph import build_upstream
from graphpass.dialects.openvino.ports import port_name
from graphpass.ir import constants

if TYPE_CHECKING:
    from collections.abc import Iterable

    from graphpass.ir.graph import Value

__all__ = [
    "TOKEN_INPUTS",
    "add_input",
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


def fold(output: openvino.Output) -> numpy.ndarray | None:
    """Fold ``output`` of a model under edit, of which no `Graph` is at hand; see `graphpass.ir.constants.fold`."""
    found = build_upstream(output)
    return None if found is None else constants.fold(*found)
