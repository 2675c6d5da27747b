"""`NodeMaker` creates operators by their neutral names; `Writer` names them under a prefix."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeAlias

from graphpass.ir.graph import Value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy

    from graphpass.ir.graph import Node


Handle: TypeAlias = Any
"""A tensor of the native graph: an `openvino.Output`, or an `onnx_graphsurgeon.Tensor`."""

Operand: TypeAlias = Any
"""A `Value`, a `Handle`, integers that become an i64 constant, or ``None`` for an omitted input."""

#: Stop of a slice that is unbounded.
NO_STOP = 2**63 - 1


class NodeMaker(ABC):
    """Creates nodes in a model of either dialect."""

    def under(self, prefix: str) -> Writer:
        """Return a writer of nodes whose names begin with ``prefix``."""
        return Writer(self, prefix)

    def handle(self, operand: Operand, name: str = "") -> Handle:
        """Return the native tensor of an operand; ``None`` for an omitted input.

        Args:
            operand: The operand; a native tensor is returned unchanged.
            name: Name of the constant that is created for integers.
        """
        if operand is None or not isinstance(operand, Value | int | list | tuple | range):
            return operand
        return self.native(operand) if isinstance(operand, Value) else self.constant(operand, "i64", name)

    @abstractmethod
    def native(self, value: Value) -> Handle:
        """Return the native tensor of a value of `graph`, with earlier edits applied."""

    @abstractmethod
    def type_of(self, handle: Handle) -> str:
        """Return the element type of a tensor; ``"dynamic"`` if unknown."""

    @abstractmethod
    def make(
        self, kind: str, inputs: Sequence[Operand], name: str, count: int, neutral: Mapping[str, Any]
    ) -> list[Handle]:
        """Create an operator.

        Args:
            kind: The neutral name; the native name if there is no neutral one.
            inputs: The operands, without axes and sizes that are attributes in the neutral form.
            name: Name of the node, and of its first output in ONNX.
            count: Number of outputs.
            neutral: The attributes; names that are not listed here are the operator's own.

                - ``axis``: Concat, Gather, Softmax, ScatterElementsUpdate ...
                - ``axes``: Squeeze, Unsqueeze, Slice, reductions
                - ``order``: Transpose
                - ``to``: Convert
                - ``keep``: reductions
                - ``mode``: Broadcast, ``numpy`` or ``bidirectional``
                - ``zero_keeps``: Reshape

        Returns:
            Its outputs, in order.
        """

    def op(self, kind: str, *inputs: Operand, name: str, **attributes: Any) -> Handle:
        """Create an operator with one output; see `make`.

        Args:
            kind: The operator.
            inputs: Its operands.
            name: Name of the node, and of its output in ONNX.
            attributes: Its attributes.

        Returns:
            Its output.
        """
        return self.make(kind, inputs, name, 1, attributes)[0]

    def split(self, operand: Operand, axis: int, sizes: Sequence[int], name: str) -> list[Handle]:
        """Split a tensor along an axis.

        Args:
            operand: The tensor.
            axis: The axis to split.
            sizes: Sizes of the results along the axis.
            name: Name of the node.

        Returns:
            One tensor for each size, in order.
        """
        return self.make("VariadicSplit", [operand, list(sizes)], name, len(sizes), {"axis": axis})

    @abstractmethod
    def constant(self, values: Any, element_type: str, name: str) -> Handle:
        """Create a constant.

        Args:
            values: A number (creates a scalar), a sequence of numbers, or an array.
            element_type: OpenVINO's short name; ``""`` for the type of an array.
            name: Name of the node.

        Returns:
            The constant.
        """

    @abstractmethod
    def size(self, operand: Operand, axis: int, name: str, shape: Handle | None = None) -> Handle:
        """Create the operators that compute one dimension of a tensor.

        Args:
            operand: The tensor.
            axis: Index of the dimension, from 0.
            name: Name of the node.
            shape: The tensor's shape, if it is computed already; ``None`` creates a ShapeOf.

        Returns:
            The dimension, i64 ``[1]``.
        """

    @abstractmethod
    def clone(self, node: Node, inputs: Mapping[int, Operand], name: str, axes: Sequence[int] | None = None) -> Handle:
        """Create a copy of a node with other inputs and axes.

        Args:
            node: A node with one output.
            inputs: New operands by port; the copy shares all other inputs with ``node``.
            name: Name of the copy.
            axes: Its axes, as in `Rewriter.set_axes`; ``None`` for the axes of ``node``.

        Returns:
            The output of the copy.
        """


class Writer:
    """Creates nodes named ``<prefix>/<label>``, with a number if the label was used before."""

    def __init__(self, maker: NodeMaker, prefix: str) -> None:
        """Create a writer; see `NodeMaker.under`."""
        self._maker = maker
        self._prefix = prefix
        self._used: dict[str, int] = {}

    def op(self, kind: str, *inputs: Operand, label: str = "", name: str = "", **attributes: Any) -> Handle:
        """Create an operator with one output; see `NodeMaker.make`.

        Args:
            kind: The operator.
            inputs: Its operands.
            label: Last part of the node's name; ``kind`` by default.
            name: The full name of the node, in place of prefix and label.
            attributes: Its attributes.

        Returns:
            Its output.
        """
        return self._maker.make(kind, inputs, name or self._name(label or kind), 1, attributes)[0]

    def outputs(self, kind: str, *inputs: Operand, count: int, label: str = "", **attributes: Any) -> list[Handle]:
        """Create an operator with several outputs; see `NodeMaker.make`.

        Args:
            kind: The operator.
            inputs: Its operands.
            count: Number of outputs.
            label: Last part of the node's name; ``kind`` by default.
            attributes: Its attributes.

        Returns:
            Its ``count`` outputs, in order.
        """
        return self._maker.make(kind, inputs, self._name(label or kind), count, attributes)

    def clone(self, node: Node, *inputs: Operand) -> Handle:
        """Create a copy of ``node``, which has one output, with these inputs.

        Returns:
            The output of the copy.
        """
        return self._maker.clone(node, dict(enumerate(inputs)), self._name(node.op))

    def constant(
        self, values: int | Sequence[int] | numpy.ndarray, label: str = "Constant", element_type: str = ""
    ) -> Handle:
        """Create a constant.

        Args:
            values: An integer (creates a scalar), a sequence of integers, or an array.
            label: Last part of the node's name.
            element_type: OpenVINO's short name; by default the array's type, or i64 for integers.

        Returns:
            The constant.
        """
        kind = element_type or ("i64" if isinstance(values, int | list | tuple | range) else "")
        return self._maker.constant(values, kind, self._name(label))

    def number(self, value: float | bool, element_type: str, label: str = "Constant") -> Handle:
        """Create a constant scalar.

        Args:
            value: Its element.
            element_type: OpenVINO's short name.
            label: Last part of the node's name.

        Returns:
            The constant, of shape ``[]``.
        """
        return self._maker.constant(value, element_type, self._name(label))

    def convert(self, operand: Operand, element_type: str, label: str = "converted") -> Handle:
        """Create a Convert, unless the operand has this type already.

        Args:
            operand: The tensor to convert.
            element_type: OpenVINO's short name of the new type.
            label: Last part of the node's name.

        Returns:
            The tensor in the new type.
        """
        handle = self._maker.handle(operand)
        if self._maker.type_of(handle) == element_type:
            return handle
        return self.op("Convert", handle, to=element_type, label=label)

    def size(self, operand: Operand, axis: int, label: str = "Size", shape: Handle | None = None) -> Handle:
        """Create the operators that compute one dimension of a tensor.

        Args:
            operand: The tensor.
            axis: Index of the dimension, from 0.
            label: Last part of the node's name.
            shape: The tensor's shape, if it is computed already; ``None`` creates a ShapeOf.

        Returns:
            The dimension, i64 ``[1]``.
        """
        return self._maker.size(operand, axis, self._name(label), shape)

    def slice(
        self, operand: Operand, start: Operand, stop: Operand, axis: int, *, label: str = "Slice", name: str = ""
    ) -> Handle:
        """Create ``operand[start:stop]`` along ``axis``.

        Args:
            operand: The tensor.
            start: First index, an integer or a tensor i64 ``[1]``, counted from the end if negative.
            stop: Index after the last one, as ``start``; ``None`` if the slice is unbounded.
            axis: The sliced axis.
            label: Last part of the node's name.
            name: The full name of the node, in place of prefix and label.

        Returns:
            The slice, of the rank of ``operand``.
        """
        first, last = (
            [bound] if isinstance(bound, int) else bound for bound in (start, NO_STOP if stop is None else stop)
        )
        return self.op("Slice", operand, first, last, axes=[axis], label=label, name=name)

    def split(self, operand: Operand, axis: int, sizes: Sequence[int], label: str = "Split") -> list[Handle]:
        """Split a tensor along an axis.

        Args:
            operand: The tensor.
            axis: The axis to split.
            sizes: Sizes of the results along the axis.
            label: Last part of the node's name.

        Returns:
            One tensor for each size, in order.
        """
        return self._maker.split(operand, axis, sizes, self._name(label))

    def _name(self, label: str) -> str:
        count = self._used[label] = self._used.get(label, -1) + 1
        return f"{self._prefix}/{label}" + (f"_{count}" if count else "")
