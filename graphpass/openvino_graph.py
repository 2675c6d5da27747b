"""The dialect-neutral view of an OpenVINO model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy

from graphpass.graph import Graph, Node, Value, positive_axis
from graphpass.openvino_model import port_name, shape_of

if TYPE_CHECKING:
    import openvino

    from graphpass.openvino_model import OpenVINOModel

__all__ = ["build"]

#: Inputs of an operator that hold its axes as a constant: operator -> (input, attribute, whether it is a single axis).
_AXIS_INPUTS = {
    "Gather": (2, "axis", True),
    "ScatterElementsUpdate": (3, "axis", True),
    "ScatterUpdate": (3, "axis", True),
    "Split": (1, "axis", True),
    "VariadicSplit": (1, "axis", True),
    "Transpose": (1, "order", False),
    "Unsqueeze": (1, "axes", False),
    "Squeeze": (1, "axes", False),
    "Slice": (4, "axes", False),
    "Roll": (2, "axes", False),
}

_PLAIN_ATTRIBUTES = {
    "Concat": ("axis",),
    "Softmax": ("axis",),
    "LogSoftmax": ("axis",),
    "MatMul": ("transpose_a", "transpose_b"),
    "ScaledDotProductAttention": ("causal",),
}


def build(model: OpenVINOModel, *, inline: bool = False) -> Graph:
    """A view of ``model``; nodes are its operators in topological order.

    Args:
        model: What to look at.
        inline: Whether the operators in the bodies of an If stand in the view as if there were no If, which then is a
            node for each of its outputs, with the condition and what the bodies give as inputs.
    """
    values: dict[tuple[str, int], Value] = {}
    nodes: list[Node] = []
    stack = [_Frame(iter(model.ov_model.get_ordered_ops()))]
    while stack:
        frame = stack[-1]
        op = next(frame.ops, None)
        if op is None:
            stack.pop()
            if frame.branching is not None:
                _join(frame.branching, frame.bodies, values, nodes)
        elif (op.get_name(), 0) in values or (frame.is_body and op.get_type_name() == "Result"):
            # What goes into a body or out of it is known under its name outside.
            continue
        elif inline and op.get_type_name() == "If":
            bodies = (op.get_function(0), op.get_function(1))
            stack.append(_Frame(iter(()), branching=op, bodies=bodies))
            for number, body in enumerate(bodies):
                for entry in op.get_input_descriptions(number):
                    source = op.input_value(entry.input_index)
                    parameter = body.get_parameters()[entry.body_parameter_index]
                    values[parameter.get_name(), 0] = values[source.get_node().get_name(), source.get_index()]
                stack.append(_Frame(iter(body.get_ordered_ops()), is_body=True))
        else:
            _add(op, values, nodes)
    return Graph(tuple(nodes), _read_constant)


@dataclass
class _Frame:
    """A model or body whose operators are being added, or an If both of whose bodies have been."""

    ops: Iterator[openvino.Node]
    is_body: bool = False
    branching: Any = None
    bodies: tuple[openvino.Model, ...] = ()


def _add(op: openvino.Node, values: dict[tuple[str, int], Value], nodes: list[Node]) -> None:
    index = len(nodes)
    inputs = tuple(values[source.get_node().get_name(), source.get_index()] for source in op.input_values())
    outputs = tuple(_value(index, output) for output in op.outputs())
    for output, value in zip(op.outputs(), outputs, strict=True):
        values[op.get_name(), output.get_index()] = value
    kind = op.get_type_name()
    name = port_name(op.output(0)) if kind in {"Parameter", "Result"} else op.get_friendly_name()
    nodes.append(Node(index, name, kind, inputs, outputs, _attributes(op, kind, inputs, nodes), op))


def _join(
    branching: Any, bodies: tuple[openvino.Model, ...], values: dict[tuple[str, int], Value], nodes: list[Node]
) -> None:
    """A node for each output of an If: one of what its bodies give."""
    condition = branching.input_value(0)
    given: dict[int, list[Value]] = {}
    for number, body in enumerate(bodies):
        for entry in branching.get_output_descriptions(number):
            source = body.get_results()[entry.body_value_index].input_value(0)
            given.setdefault(entry.output_index, []).append(values[source.get_node().get_name(), source.get_index()])
    for output in branching.outputs():
        index = len(nodes)
        inputs = (values[condition.get_node().get_name(), condition.get_index()], *given[output.get_index()])
        made = _value(index, output)
        value = Value(index, 0, made.name, made.shape, made.element_type)
        values[branching.get_name(), output.get_index()] = value
        nodes.append(Node(index, branching.get_friendly_name(), "If", inputs, (value,), {}, branching))


def _value(node: int, output: openvino.Output) -> Value:
    names = sorted(output.get_names())
    name = names[0] if names else output.get_node().get_friendly_name()
    shape = shape_of(output.get_partial_shape())
    return Value(node, output.get_index(), name, shape, output.get_element_type().to_string())


def _attributes(op: openvino.Node, kind: str, inputs: tuple[Value, ...], nodes: list[Node]) -> dict[str, Any]:
    if kind in {"ReadValue", "Assign"}:
        return {"variable": op.get_attributes()["variable_id"]}
    rank = inputs[0].rank if inputs else None
    if kind in _PLAIN_ATTRIBUTES:
        native = op.get_attributes()
        found = {name: native[name] for name in _PLAIN_ATTRIBUTES[kind] if name in native}
        if "axis" in found:
            found["axis"] = positive_axis(int(found["axis"]), rank)
        return found
    if kind not in _AXIS_INPUTS:
        return {}
    port, name, single = _AXIS_INPUTS[kind]
    if port >= len(inputs) or nodes[inputs[port].node].op != "Constant":
        return {}
    rank = inputs[0].rank if kind != "Unsqueeze" else _value(0, op.output(0)).rank
    axes = tuple(positive_axis(int(axis), rank) for axis in nodes[inputs[port].node].native.data.reshape(-1))
    if kind == "Transpose" and not axes and rank is not None:
        axes = tuple(reversed(range(rank)))
    if single and len(axes) != 1:
        return {}
    return {name: axes[0] if single else axes}


def _read_constant(node: Node) -> numpy.ndarray:
    if node.outputs[0].element_type == "bf16":
        # Its `data` shows the bits of bf16 as if they were f16.
        return numpy.asarray(node.native.get_data(dtype=numpy.float32))
    return numpy.asarray(node.native.data)
