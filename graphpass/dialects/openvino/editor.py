"""Edits of an OpenVINO model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import openvino
from openvino import opset6, opset13
from openvino.op.util import Variable, VariableInfo
from openvino.utils.node_factory import NodeFactory

from graphpass.dialects.openvino.rewrite import integers, named, output_of, redirect
from graphpass.ir.editor import Editor, Handle

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from graphpass.dialects.openvino.model import OpenVINOModel
    from graphpass.ir.graph import Node, Value

__all__ = ["OpenVINOEditor"]

#: Operators that hold their axis in an attribute; others read it from this input.
_AXIS_INPUTS = {"Gather": 2, "Slice": 4, "Split": 1, "Transpose": 1, "Unsqueeze": 1, "VariadicSplit": 1}


class OpenVINOEditor(Editor):
    """Edits nodes in place, so that names and all that is not edited stay."""

    def __init__(self, model: OpenVINOModel) -> None:
        """Start with ``model``."""
        self._native = model.ov_model
        self._graph = model.graph
        self._reads: dict[str, openvino.Node] = {}

    def handle(self, value: Value) -> Handle:
        """See `Editor`."""
        return output_of(self._graph, value)

    def transpose(self, source: Handle, order: Sequence[int], name: str) -> Handle:
        """See `Editor`."""
        return named(opset13.transpose(source, integers(order, f"{name}/order")), name).output(0)

    def integers(self, values: int | Sequence[int], name: str) -> Handle:
        """See `Editor`."""
        return integers(values, name).output(0)

    def pick(self, vector: Handle, places: Sequence[int], name: str) -> Handle:
        """See `Editor`."""
        axis = integers(0, f"{name}/axis")
        return named(opset13.gather(vector, integers(places, f"{name}/places"), axis), name).output(0)

    def join(self, parts: Sequence[Handle], axis: int, name: str) -> Handle:
        """See `Editor`."""
        return named(opset13.concat(list(parts), axis), name).output(0)

    def split(self, source: Handle, axis: int, sizes: Sequence[int], name: str) -> list[Handle]:
        """See `Editor`."""
        lengths = integers(sizes, f"{name}/sizes")
        outputs: list[Handle] = named(
            opset13.variadic_split(source, integers(axis, f"{name}/axis"), lengths), name
        ).outputs()
        return outputs

    def reshape(self, source: Handle, shape: Sequence[int], name: str) -> Handle:
        """See `Editor`."""
        return named(opset13.reshape(source, integers(shape, f"{name}/shape"), True), name).output(0)

    def insert_axis(self, source: Handle, axis: int, name: str) -> Handle:
        """See `Editor`."""
        return named(opset13.unsqueeze(source, integers([axis], f"{name}/axis")), name).output(0)

    def remove_axis(self, source: Handle, axis: int, name: str) -> Handle:
        """See `Editor`."""
        return named(opset13.squeeze(source, integers([axis], f"{name}/axis")), name).output(0)

    def again(self, node: Node, inputs: Mapping[int, Handle], name: str, axes: Sequence[int] | None = None) -> Handle:
        """See `Editor`."""
        sources = dict(enumerate(node.native.input_values())) | dict(inputs)
        attributes = node.native.get_attributes()
        if axes is not None and node.op in _AXIS_INPUTS:
            sources[_AXIS_INPUTS[node.op]] = _axes_input(node, axes, name)
        elif axes is not None:
            attributes["axis"] = _signed(node, axes[0], len(sources[0].get_partial_shape()))
        factory = NodeFactory("opset13")
        return named(factory.create(node.native.get_type_name(), list(sources.values()), attributes), name).output(0)

    def add_past(self, like: Node, name: str, sizes: Sequence[int | None], initial: Handle | None) -> Handle:
        """See `Editor`."""
        element_type = like.native.get_output_element_type(0)
        if like.op == "Parameter":
            shape = _resized(like.native.get_output_partial_shape(0), sizes)
            parameter = named(opset13.parameter(shape, element_type), name)
            parameter.output(0).set_names({name})
            self._native.add_parameters([parameter])
            return parameter.output(0)
        old = self._native.get_variable_by_id(like.attributes["variable"])
        info = VariableInfo()
        info.variable_id, info.data_type = name, old.info.data_type
        info.data_shape = _resized(old.info.data_shape, sizes)
        variable = Variable(info)
        self._native.add_variables([variable])
        if initial is None:
            read = opset6.read_value(variable)
        else:
            # The binding takes nodes with a single output.
            start = initial.get_node()
            start = start if start.get_output_size() == 1 else named(opset13.concat([initial], 0), f"{name}/start")
            read = opset6.read_value(start, variable)
        self._reads[name] = named(read, f"{name}/read")
        return read.output(0)

    def add_present(self, like: Node, name: str, sizes: Sequence[int | None], source: Handle) -> None:  # noqa: ARG002
        """See `Editor`; sizes are inferred."""
        if like.op == "Result":
            result = named(opset13.result(source), name)
            result.output(0).add_names({name})
            self._native.add_results([result])
        else:
            assign = opset6.assign(self._reads[name], self._native.get_variable_by_id(name))
            assign.input(0).replace_source_output(source)
            self._native.add_sinks([named(assign, f"{name}/write")])

    def drop(self, nodes: Iterable[Node]) -> None:
        """See `Editor`."""
        for node in nodes:
            if node.op == "Parameter":
                self._native.remove_parameter(node.native)
            elif node.op == "Result":
                self._native.remove_result(node.native)
            elif node.op == "Assign":
                self._native.remove_sink(node.native)
                self._native.remove_variable(self._native.get_variable_by_id(node.attributes["variable"]))

    def whole_shape(self, node: Node) -> tuple[int, ...]:
        """See `Editor`; a ShapeOf of OpenVINO always does."""
        assert node.inputs[0] is not None
        return tuple(range(node.inputs[0].rank or 0))

    def set_axes(self, node: Node, axes: Sequence[int]) -> None:
        """See `Editor`."""
        if node.op in _AXIS_INPUTS:
            node.native.input(_AXIS_INPUTS[node.op]).replace_source_output(_axes_input(node, axes, node.name))
        else:
            node.native.set_attribute("axis", _signed(node, axes[0], len(node.native.get_input_partial_shape(0))))

    def set_shape(self, reshape: Node, shape: Sequence[int]) -> None:
        """See `Editor`."""
        reshape.native.set_attribute("special_zero", True)
        reshape.native.input(1).replace_source_output(integers(shape, f"{reshape.name}/shape").output(0))

    def redirect(self, node: Node, port: int, source: Handle) -> None:
        """See `Editor`."""
        entry = node.native.input(port)
        if node.op == "Result":
            # Results are named after what they read.
            old, names = entry.get_source_output(), node.native.output(0).get_names()
            entry.replace_source_output(source)
            old.set_names(old.get_names() - names)
            source.set_names(source.get_names() | names)
        else:
            entry.replace_source_output(source)

    def bypass(self, node: Node, source: Handle) -> None:
        """See `Editor`."""
        redirect(node.native.output(0), source)

    def transpose_port(self, node: Node, order: Sequence[int]) -> None:
        """See `Editor`."""
        native = node.native
        if node.op == "Parameter":
            native.set_partial_shape(_transposed(native.get_output_partial_shape(0), order))
            native.constructor_validate_and_infer_types()
        elif node.op == "ReadValue":
            variable = self._native.get_variable_by_id(node.attributes["variable"])
            info = VariableInfo()
            info.variable_id, info.data_type = variable.info.variable_id, variable.info.data_type
            info.data_shape = _transposed(variable.info.data_shape, order)
            variable.update(info)

    def moved(self, value: Value, order: Sequence[int]) -> None:
        """See `Editor`; shapes are inferred."""

    def finish(self) -> None:
        """See `Editor`; nodes that nothing reads are none of the model."""
        self._native.validate_nodes_and_infer_types()

    def count(self, op: str) -> int:
        """See `Editor`."""
        return sum(node.get_type_name() == op for node in self._native.get_ops())


def _axes_input(node: Node, axes: Sequence[int], name: str) -> openvino.Output:
    single = node.native.get_input_partial_shape(_AXIS_INPUTS[node.op]).rank.get_length() == 0
    return integers(axes[0] if single else axes, f"{name}/axes").output(0)


def _signed(node: Node, axis: int, rank: int) -> int:
    """``axis`` counted from the end where it was: the CPU plugin compares those of keys and values as they stand."""
    return axis - rank if node.native.get_attributes()["axis"] < 0 else axis


def _resized(shape: openvino.PartialShape, sizes: Sequence[int | None]) -> openvino.PartialShape:
    made = [
        shape[place] if size is None else openvino.Dimension(size) for place, size in enumerate(sizes) if size != -1
    ]
    return openvino.PartialShape(made)


def _transposed(shape: openvino.PartialShape, order: Sequence[int]) -> openvino.PartialShape:
    return shape if shape.rank.is_dynamic else openvino.PartialShape([shape[axis] for axis in order])
