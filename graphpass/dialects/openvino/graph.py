"""Build the dialect-neutral view of an OpenVINO model."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy

from graphpass.dialects.openvino.ports import port_name, shape_of
from graphpass.dialects.openvino.spelling import spelled
from graphpass.dialects.packed_bits import FOUR_BITS, numbers_of
from graphpass.ir.graph import Graph, Node, Value, positive_axis
from graphpass.ir.operators import REDUCTIONS
from graphpass.progress import counting

if TYPE_CHECKING:
    import openvino


#: Inputs that are axes as a constant: operator -> (input, attribute, whether it is a single axis).
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
    **dict.fromkeys(REDUCTIONS, (1, "axes", False)),
}

_PLAIN_ATTRIBUTES = {
    "Broadcast": ("mode",),
    "Concat": ("axis",),
    "CumSum": ("exclusive", "reverse"),
    "Einsum": ("equation",),
    "Gather": ("batch_dims",),
    "GatherND": ("batch_dims",),
    "GatherElements": ("axis",),
    "Reshape": ("special_zero",),
    "StridedSlice": ("begin_mask", "end_mask", "new_axis_mask", "shrink_axis_mask", "ellipsis_mask"),
    "Softmax": ("axis",),
    "GroupConvolution": ("strides", "dilations", "pads_begin", "pads_end"),
    "LogSoftmax": ("axis",),
    "MVN": ("eps",),
    "MatMul": ("transpose_a", "transpose_b"),
    "Pad": ("pad_mode",),
    "OneHot": ("axis",),
    "ScatterElementsUpdate": ("reduction",),
    "ScatterNDUpdate": ("reduction",),
    "TopK": ("axis", "mode", "sort"),
    "ScaledDotProductAttention": ("causal",),
}

#: Default values of attributes; graphs omit attributes that equal them.
_USUAL = {
    "exclusive": False,
    "mode": "max",
    "pad_mode": "constant",
    "reduction": "none",
    "reverse": False,
    "sort": "value",
}


def build(ov_model: openvino.Model, *, inline: bool = False) -> Graph:
    """Build the view of a model, with operators as nodes in topological order.

    Args:
        ov_model: The model.
        inline: Whether to inline bodies as `graphpass.ir.bodies` describes; otherwise an operator with bodies is one
            node.

    Returns:
        The view.
    """
    builder = _Builder()
    with counting("building the graph", ov_model.get_ordered_ops(), "operators") as ops:
        _add_all(builder, _Frame(iter(ops)), inline=inline)
    return Graph(tuple(builder.nodes), _read_constant, spelled)


def _add_all(builder: _Builder, outermost: _Frame, *, inline: bool) -> None:
    stack = [outermost]
    while stack:
        frame = stack[-1]
        op = next(frame.ops, None)
        if op is None:
            stack.pop()
            frame.leave()
        elif (op.get_name(), 0) in builder.values or (frame.is_body and op.get_type_name() == "Result"):
            # Inputs and results of a body are registered already, as values of the outer graph.
            continue
        elif inline and op.get_type_name() == "If":
            stack += builder.add_branches(op)
        elif inline and op.get_type_name() in {"Loop", "TensorIterator"}:
            stack += builder.add_loop(op)
        else:
            builder.add(op)


@dataclass
class _Frame:
    ops: Iterator[openvino.Node]
    is_body: bool = False
    leave: Callable[[], None] = lambda: None


class _Builder:
    """Collects nodes, and values by name and port of the native operator."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.values: dict[tuple[str, int], Value] = {}

    def value(self, source: openvino.Output) -> Value:
        return self.values[source.get_node().get_name(), source.get_index()]

    def add(self, op: openvino.Node) -> None:
        index, own, kind = len(self.nodes), op.get_name(), op.get_type_name()
        inputs = tuple([self.values[source.get_node().get_name(), source.get_index()] for source in op.input_values()])
        outputs = tuple([_value(index, output) for output in op.outputs()])
        for value in outputs:
            self.values[own, value.port] = value
        if kind == "ConvertLike":
            # The second input only determines the type, which is the output's type.
            kind, inputs = "Convert", inputs[:1]
        name = port_name(op.output(0)) if kind in {"Parameter", "Result"} else op.get_friendly_name()
        self.nodes.append(Node(index, name, kind, inputs, outputs, self._attributes(op, kind, inputs), op))

    def _add_port(
        self,
        op: openvino.Node,
        kind: str,
        inputs: tuple[Value, ...],
        output: openvino.Output,
        attributes: dict[str, Any],
    ) -> Value:
        """Add a node for one port of ``op``: an output or a body's Parameter.

        Returns:
            The value of ``output`` in the view.
        """
        index = len(self.nodes)
        value = replace(_value(index, output), port=0)
        self.values[output.get_node().get_name(), output.get_index()] = value
        self.nodes.append(Node(index, op.get_friendly_name(), kind, inputs, (value,), attributes, op))
        return value

    def add_branches(self, op: Any) -> list[_Frame]:
        bodies = (op.get_function(0), op.get_function(1))
        frames = [_Frame(iter(()), leave=functools.partial(self._join, op, bodies))]
        for number, body in enumerate(bodies):
            for entry in op.get_input_descriptions(number):
                parameter = body.get_parameters()[entry.body_parameter_index]
                self.values[parameter.get_name(), 0] = self.value(op.input_value(entry.input_index))
            frames.append(_Frame(iter(body.get_ordered_ops()), is_body=True))
        return frames

    def _join(self, branching: Any, bodies: tuple[openvino.Model, ...]) -> None:
        joined: dict[int, list[Value]] = {}
        for number, body in enumerate(bodies):
            for entry in branching.get_output_descriptions(number):
                source = body.get_results()[entry.body_value_index].input_value(0)
                joined.setdefault(entry.output_index, []).append(self.value(source))
        for output in branching.outputs():
            inputs = (self.value(branching.input_value(0)), *joined[output.get_index()])
            self._add_port(branching, "If", inputs, output, {"joins": True})

    def add_loop(self, op: Any) -> list[_Frame]:
        """Add a node for each input of a loop's body.

        Returns:
            A frame that ends the loop, and one of the body's operators, which is processed first.
        """
        body, loop = op.get_function(), {"loop": op.get_type_name()}
        parameters = body.get_parameters()
        number: dict[str, Any] = dict(loop)
        if op.get_type_name() == "Loop":
            number |= {"count": self.value(op.input_value(0)), "conditions": (self.value(op.input_value(1)), None)}
        starts: dict[int, Value] = {}
        for entry in op.get_input_descriptions():
            parameter = parameters[entry.body_parameter_index]
            source = self.value(op.input_value(entry.input_index))
            kind = entry.get_type_info().name
            if kind == "MergedInputDescription":
                carried = self._add_port(op, "Carried", (source,), parameter.output(0), loop)
                starts[entry.body_value_index] = carried
            elif kind == "SliceInputDescription":
                attributes = loop | {"axis": positive_axis(entry.axis, source.rank), **_slices(entry)}
                self._add_port(op, "Sliced", (source,), parameter.output(0), attributes)
            else:
                self.values[parameter.get_name(), 0] = source
        counted = op.get_special_body_ports()[0] if op.get_type_name() == "Loop" else -1
        for place, parameter in enumerate(parameters):
            if place == counted:
                self._add_port(op, "Iteration", (), parameter.output(0), number)
            elif (parameter.get_name(), 0) not in self.values:
                # Nothing is fed to it.
                self._add_port(op, "Undefined", (), parameter.output(0), loop)
        if op.get_type_name() == "Loop" and counted < 0:
            # Iterations are counted even if the body does not read their number.
            index, name = len(self.nodes), op.get_friendly_name()
            count = Value(index, 0, f"{name}/iteration", (), "i64")
            self.nodes.append(Node(index, name, "Iteration", (), (count,), number, op))
        ending = functools.partial(self._end_loop, op, starts, number)
        return [_Frame(iter(()), leave=ending), _Frame(iter(body.get_ordered_ops()), is_body=True)]

    def _end_loop(self, op: Any, starts: dict[int, Value], number: dict[str, Any]) -> None:
        """Add a node for each output of a Loop or TensorIterator."""
        results, loop = op.get_function().get_results(), {"loop": op.get_type_name()}
        if "conditions" in number:
            _, goes_on = op.get_special_body_ports()
            number["conditions"] += (self.value(results[goes_on].input_value(0)),)
        for entry in op.get_output_descriptions():
            result = self.value(results[entry.body_value_index].input_value(0))
            output, left = op.output(entry.output_index), loop | {"port": entry.output_index}
            if entry.get_type_info().name == "ConcatOutputDescription":
                attributes = left | {"axis": positive_axis(entry.axis, result.rank), **_slices(entry)}
                self._add_port(op, "Stacked", (result,), output, attributes)
            else:
                start = starts.get(entry.body_value_index)
                self._add_port(op, "Final", (result,) if start is None else (result, start), output, left)

    def _attributes(self, op: openvino.Node, kind: str, inputs: tuple[Value, ...]) -> dict[str, Any]:
        if kind == "Parameter":
            return {"names": tuple(sorted(op.output(0).get_names()))}
        if kind in {"ReadValue", "Assign"}:
            return {"variable": op.get_attributes()["variable_id"]}
        attributes: dict[str, Any] = {}
        native = op.get_attributes()
        if native.get("auto_broadcast", "numpy") == "pdpd":
            attributes["aligns_first"] = True
        if kind in _PLAIN_ATTRIBUTES:
            wanted = {name: native[name] for name in _PLAIN_ATTRIBUTES[kind] if name in native}
            attributes |= {name: value for name, value in wanted.items() if _USUAL.get(name) != value}
            if "axis" in attributes:
                counted = _value(0, op.output(0)) if kind == "OneHot" else inputs[0]
                attributes["axis"] = positive_axis(int(attributes["axis"]), counted.rank)
            if "batch_dims" in attributes and len(inputs) > 1:
                attributes["batch_dims"] = positive_axis(int(attributes["batch_dims"]), inputs[1].rank)
        if kind == "Divide" and op.get_element_type().is_integral() and native["m_pythondiv"]:
            attributes["floors"] = True
        if kind == "StridedSlice" and (steps := self._constant_input(3, inputs)) is not None:
            attributes["steps"] = tuple(steps)
        return attributes | self._axes(op, kind, inputs) if kind in _AXIS_INPUTS else attributes

    def _axes(self, op: openvino.Node, kind: str, inputs: tuple[Value, ...]) -> dict[str, Any]:
        port, name, single = _AXIS_INPUTS[kind]
        constant = self._constant_input(port, inputs)
        ports = {"steps_port": 3} if kind == "Slice" else {}
        if constant is None:
            return ports
        rank = inputs[0].rank if kind != "Unsqueeze" else _value(0, op.output(0)).rank
        axes = tuple(positive_axis(axis, rank) for axis in constant)
        if kind == "Transpose" and not axes and rank is not None:
            axes = tuple(reversed(range(rank)))
        if single and len(axes) != 1:
            return ports
        return ports | {name: axes[0] if single else axes}

    def _constant_input(self, port: int, inputs: tuple[Value, ...]) -> list[int] | None:
        node = self.nodes[inputs[port].node] if port < len(inputs) else None
        return node.native.data.reshape(-1).tolist() if node is not None and node.op == "Constant" else None


def _slices(entry: Any) -> dict[str, bool]:
    """Return the attributes of sliced inputs and concatenated outputs of a loop."""
    return {"keeps_axis": True, "in_order": (entry.start, entry.stride, entry.part_size, entry.end) == (0, 1, 1, -1)}


def _value(node: int, output: openvino.Output) -> Value:
    names = output.get_names()
    name = min(names) if names else output.get_node().get_friendly_name()
    shape = shape_of(output.get_partial_shape())
    return Value(node, output.get_index(), name, shape, output.get_element_type().to_string())


def _read_constant(node: Node) -> numpy.ndarray | None:
    element_type = node.outputs[0].element_type
    if element_type == "dynamic":  # OpenVINO's ONNX frontend represents an omitted input so
        return None
    if element_type == "bf16":
        # `data` reinterprets the bits of bf16 as f16.
        return numpy.asarray(node.native.get_data(dtype=numpy.float32))
    stored = numpy.asarray(node.native.data)
    return numbers_of(stored, element_type, node.native.shape) if element_type in FOUR_BITS else stored
