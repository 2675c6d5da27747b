"""Edits of an OpenVINO model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import openvino
from openvino import opset13
from openvino.op.util import VariableInfo

from graphpass.editor import Editor, Handle
from graphpass.rewrite import integers, named, output_of, redirect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphpass.graph import Node, Value
    from graphpass.openvino_model import OpenVINOModel

__all__ = ["OpenVINOEditor"]

#: Operators that hold their axis in an attribute; others read it from this input.
_AXIS_INPUTS = {"Gather": 2, "Slice": 4, "Transpose": 1, "Unsqueeze": 1}


class OpenVINOEditor(Editor):
    """Edits nodes in place, so that names and all that is not edited stay."""

    def __init__(self, model: OpenVINOModel) -> None:
        """Start with ``model``."""
        self._native = model.ov_model
        self._graph = model.graph

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

    def whole_shape(self, node: Node) -> tuple[int, ...]:
        """See `Editor`; a ShapeOf of OpenVINO always does."""
        assert node.inputs[0] is not None
        return tuple(range(node.inputs[0].rank or 0))

    def set_axes(self, node: Node, axes: Sequence[int]) -> None:
        """See `Editor`."""
        if node.op in _AXIS_INPUTS:
            port = _AXIS_INPUTS[node.op]
            single = node.op == "Gather" and node.native.get_input_partial_shape(port).rank.get_length() == 0
            constant = integers(axes[0] if single else axes, f"{node.name}/axes")
            node.native.input(port).replace_source_output(constant.output(0))
        else:
            # Counted from the end where it was: the CPU plugin compares the axes of keys and values as they stand.
            rank = len(node.native.get_input_partial_shape(0)) if node.native.get_attributes()["axis"] < 0 else 0
            node.native.set_attribute("axis", axes[0] - rank)

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


def _transposed(shape: openvino.PartialShape, order: Sequence[int]) -> openvino.PartialShape:
    return shape if shape.rank.is_dynamic else openvino.PartialShape([shape[axis] for axis in order])
