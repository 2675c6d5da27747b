"""Edit bodies of loops in an OpenVINO model."""

from __future__ import annotations

from collections.abc import Callable

import openvino
from openvino import opset13
from openvino.op.util import MergedInputDescription, SliceInputDescription

from graphpass.dialects.openvino.graph import build
from graphpass.dialects.openvino.rewriter import OpenVINORewriter
from graphpass.ir.graph import Node, Value
from graphpass.ir.writer import Handle


class LoopBody:
    """The body of a Loop or TensorIterator, with the inputs and states of the loop.

    Attributes:
        rewriter: Edits the body.
    """

    def __init__(self, loop: Node, edited: Callable[[], None]) -> None:
        """View the body of ``loop``; ``edited`` as in `OpenVINORewriter`."""
        self._loop = loop.native
        self._native = self._loop.get_function()
        self.rewriter = OpenVINORewriter(self._native, build(self._native), edited)

    @property
    def steps_by_one(self) -> bool:
        """Return whether iteration ``i`` reads index ``i`` of each sliced input."""
        sliced = [
            description
            for description in self._loop.get_input_descriptions()
            if isinstance(description, SliceInputDescription)
        ]
        return {
            (description.start, description.stride, description.part_size, description.end) for description in sliced
        } == {(0, 1, 1, -1)}

    def carried(self, port: int) -> tuple[Value, Node] | None:
        """Return the body's value for the loop-carried input ``port`` and its Result, if any."""
        own = {node.native.get_name(): node for node in self.rewriter.graph.of_op("Parameter", "Result")}
        for description in self._loop.get_input_descriptions():
            if isinstance(description, MergedInputDescription) and description.input_index == port:
                parameter = self._native.get_parameters()[description.body_parameter_index]
                result = self._native.get_results()[description.body_value_index]
                return own[parameter.get_name()].outputs[0], own[result.get_name()]
        return None

    def slice_input(self, source: Handle, axis: int, name: str) -> Handle:
        """Add an input that slices ``source`` per iteration.

        Args:
            source: Value of the outer graph.
            axis: Axis of ``source``, of which iteration ``i`` reads index ``i``.
            name: Name of the body's Parameter.

        Returns:
            The slice in the body, with size 1 along ``axis``.
        """
        shape = openvino.PartialShape([1 if index == axis else -1 for index in range(len(source.get_partial_shape()))])
        parameter = opset13.parameter(shape, source.get_element_type())
        parameter.set_friendly_name(name)
        self._native.add_parameters([parameter])
        self._loop.set_sliced_input(parameter, source, 0, 1, 1, -1, axis)
        # A model caches the order of its nodes until an edge is replaced, and the cached order ignores added edges.
        self._loop.input(0).replace_source_output(self._loop.input_value(0))
        self.rewriter.mark_changed()
        return parameter.output(0)
