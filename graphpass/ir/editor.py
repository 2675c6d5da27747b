"""`Editor`: edits of a native graph that mean the same in ONNX and in OpenVINO, for passes that take both.

What is edited is named by the nodes and values of one `Graph`, which keeps showing the graph as it was.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from graphpass.ir.graph import Node, Value

__all__ = ["Editor", "Handle"]

Handle: TypeAlias = Any
"""A tensor of the native graph: an `openvino.Output`, or a name."""


class Editor(ABC):
    """Edits one model; nothing is right before `finish`."""

    @abstractmethod
    def handle(self, value: Value) -> Handle:
        """The tensor behind ``value``."""

    @abstractmethod
    def transpose(self, source: Handle, order: Sequence[int], name: str) -> Handle:
        """A new Transpose: axis ``i`` of the result is axis ``order[i]`` of ``source``."""

    @abstractmethod
    def integers(self, values: int | Sequence[int], name: str) -> Handle:
        """A new constant, i64: a scalar for an int, a vector for several."""

    @abstractmethod
    def pick(self, vector: Handle, places: Sequence[int], name: str) -> Handle:
        """A new Gather of elements of a vector."""

    @abstractmethod
    def join(self, parts: Sequence[Handle], axis: int, name: str) -> Handle:
        """A new Concat."""

    @abstractmethod
    def split(self, source: Handle, axis: int, sizes: Sequence[int], name: str) -> list[Handle]:
        """A new Split, or VariadicSplit, into parts of these sizes."""

    @abstractmethod
    def reshape(self, source: Handle, shape: Sequence[int], name: str) -> Handle:
        """A new Reshape; 0 keeps a dimension, -1 is what is left."""

    @abstractmethod
    def insert_axis(self, source: Handle, axis: int, name: str) -> Handle:
        """A new Unsqueeze."""

    @abstractmethod
    def remove_axis(self, source: Handle, axis: int, name: str) -> Handle:
        """A new Squeeze."""

    @abstractmethod
    def again(self, node: Node, inputs: Mapping[int, Handle], name: str, axes: Sequence[int] | None = None) -> Handle:
        """A copy of ``node``, which has one output, with other inputs and, as `set_axes` has it, other axes."""

    @abstractmethod
    def add_past(self, like: Node, name: str, sizes: Sequence[int | None], initial: Handle | None) -> Handle:
        """A new tensor that is carried.

        Args:
            like: The Parameter or ReadValue whose type and dimensions it has.
            name: What the input is called, or the variable.
            sizes: The dimensions: ``None`` as ``like`` has it in this place, -1 for one that goes. They may be more or
                fewer than those of ``like``.
            initial: What a variable starts with.
        """

    @abstractmethod
    def add_present(self, like: Node, name: str, sizes: Sequence[int | None], source: Handle) -> None:
        """The output, or the write of the variable, that belongs to `add_past`; arguments as there."""

    @abstractmethod
    def drop(self, nodes: Iterable[Node]) -> None:
        """Take Parameters, ReadValues, Results and Assigns out, with their variables; nothing reads them by now."""

    @abstractmethod
    def whole_shape(self, node: Node) -> tuple[int, ...]:
        """Let a ShapeOf give all dimensions; those that it gave before."""

    @abstractmethod
    def set_axes(self, node: Node, axes: Sequence[int]) -> None:
        """Let ``node`` work along other axes: of a Transpose the order, of a Concat or Gather the only one."""

    @abstractmethod
    def set_shape(self, reshape: Node, shape: Sequence[int]) -> None:
        """Let a Reshape make this shape; 0 keeps a dimension, -1 is what is left."""

    @abstractmethod
    def redirect(self, node: Node, port: int, source: Handle) -> None:
        """Let input ``port`` of ``node`` read ``source``. What an output of the model is called stays its name."""

    @abstractmethod
    def bypass(self, node: Node, source: Handle) -> None:
        """Let whoever reads the only output of ``node`` read ``source``, but for outputs of the model."""

    @abstractmethod
    def transpose_port(self, node: Node, order: Sequence[int]) -> None:
        """Declare the tensor of a Parameter, ReadValue, Result or Assign with its axes in this order."""

    @abstractmethod
    def moved(self, value: Value, order: Sequence[int]) -> None:
        """Say that the axes of ``value`` are in this order now."""

    @abstractmethod
    def finish(self) -> None:
        """Put nodes in order, take out what nothing reads any more, infer shapes anew."""

    @abstractmethod
    def count(self, op: str) -> int:
        """How many nodes of this ONNX or OpenVINO operator the graph has, bodies aside."""
