"""`Rewriter`: edits a model of either dialect through nodes and values of its `Graph`.

Operators have their neutral names (``Multiply``, ``Select``, ``Broadcast`` ...), and axes are attributes. The rewriter
translates both to the dialect:

>>> rewriter = model.rewriter()                                              # doctest: +SKIP
>>> write = rewriter.under("mask")                                           # doctest: +SKIP
>>> shifted = write.op("Add", value, write.number(1.0, "f32"))               # doctest: +SKIP
>>> rewriter.replace(value, write.op("Gather", shifted, [0, 2], axis=1))     # doctest: +SKIP
>>> rewriter.finish()                                                        # doctest: +SKIP
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeAlias

from graphpass.ir.graph import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy

    from graphpass.ir.graph import Graph, Node, Use
    from graphpass.ir.types import Dimension


Handle: TypeAlias = Any
"""A tensor of the native graph: an `openvino.Output`, or an `onnx_graphsurgeon.Tensor`."""

Operand: TypeAlias = Any
"""A `Value`, a `Handle`, integers that become an i64 constant, or ``None`` for an omitted input."""

#: Stop of a slice that is unbounded.
NO_STOP = 2**63 - 1


def claim_name(taken: set[str], name: str) -> str:
    """Return ``name``, with a number if ``taken`` has it, and add the result to ``taken``."""
    number, unused = 1, name
    while unused in taken:
        number += 1
        unused = f"{name}_{number}"
    taken.add(unused)
    return unused


class Rewriter(ABC):
    """Edits one model once; `finish` completes the edits.

    Attributes:
        graph: The view of the model when the rewriter was created.
    """

    graph: Graph

    def under(self, prefix: str) -> Writer:
        """Return a writer of nodes whose names begin with ``prefix``."""
        return Writer(self, prefix)

    def handle(self, operand: Operand, name: str = "") -> Handle:
        """Return the native tensor of ``operand``; integers become a constant named ``name``."""
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
        """

    def op(self, kind: str, *inputs: Operand, name: str, **attributes: Any) -> Handle:
        """Create an operator with one output; see `make`."""
        return self.make(kind, inputs, name, 1, attributes)[0]

    def split(self, operand: Operand, axis: int, sizes: Sequence[int], name: str) -> list[Handle]:
        """Create the operator that splits ``operand`` along ``axis`` into ``sizes``."""
        return self.make("VariadicSplit", [operand, list(sizes)], name, len(sizes), {"axis": axis})

    @abstractmethod
    def constant(self, values: Any, element_type: str, name: str) -> Handle:
        """Create a constant from a number, a sequence or an array."""

    @abstractmethod
    def input(self, name: str, element_type: str, shape: Sequence[Dimension]) -> Handle:
        """Add an input; a string or ``None`` is a dimension that is not fixed."""

    @abstractmethod
    def output(self, name: str, source: Handle, element_type: str, shape: Sequence[Dimension]) -> None:
        """Add an output; an existing tensor with this name is renamed."""

    @abstractmethod
    def size(self, operand: Operand, axis: int, name: str, shape: Handle | None = None) -> Handle:
        """Create one dimension of a tensor, i64 ``[1]``, from ``shape`` if passed."""

    @abstractmethod
    def clone(self, node: Node, inputs: Mapping[int, Operand], name: str, axes: Sequence[int] | None = None) -> Handle:
        """Clone ``node``, which has one output, with other inputs and axes; see `set_axes`."""

    @abstractmethod
    def replace(self, old: Value, new: Handle) -> None:
        """Redirect all users of ``old``, model outputs included, to ``new``, and transfer its names.

        Afterwards ``old`` as an operand means ``new``, so later rewrites build on this one.
        """

    @abstractmethod
    def redirect_uses(self, old: Operand, new: Handle, only: Callable[[Use], bool] | None = None) -> int:
        """Redirect the users of ``old`` that satisfy ``only``, except model outputs; return their number."""

    @abstractmethod
    def redirect(self, node: Node, port: int, source: Operand) -> None:
        """Set input ``port`` of ``node`` to ``source``; an output of the model keeps its name."""

    @abstractmethod
    def set_input(self, node: Node, port: int, source: Operand) -> None:
        """Set input ``port`` of ``node``, which may be omitted so far, to ``source``."""

    @abstractmethod
    def add_past(self, like: Node, name: str, sizes: Sequence[int | None], initial: Handle | None) -> Handle:
        """Add a cache's past.

        Args:
            like: The Parameter or ReadValue whose type and dimensions are copied.
            name: Name of the input or variable.
            sizes: The dimensions, of any number: ``None`` copies the dimension of ``like`` at the same index, -1 drops
                the dimension.
            initial: Initial value of a variable.
        """

    @abstractmethod
    def add_present(self, like: Node, name: str, sizes: Sequence[int | None], source: Handle) -> None:
        """Add the output or Assign that pairs with `add_past`, with the same arguments."""

    @abstractmethod
    def drop(self, nodes: Iterable[Node]) -> None:
        """Remove Parameters, ReadValues, Results and Assigns without users, with their variables."""

    @abstractmethod
    def drop_input(self, name: str) -> bool:
        """Remove the input named ``name`` if it has no users; return whether it was removed."""

    @abstractmethod
    def whole_shape(self, node: Node) -> tuple[int, ...]:
        """Remove start and end from a ShapeOf; return the axes that it selected."""

    @abstractmethod
    def set_axes(self, node: Node, axes: Sequence[int]) -> None:
        """Set the order of a Transpose, or the axis of a Concat or Gather."""

    @abstractmethod
    def set_shape(self, reshape: Node, shape: Sequence[int]) -> None:
        """Set the shape of a Reshape; 0 copies a dimension, -1 is inferred."""

    @abstractmethod
    def transpose_port(self, node: Node, order: Sequence[int]) -> None:
        """Permute the declared axes of a Parameter, ReadValue, Result or Assign."""

    @abstractmethod
    def resize_port(self, node: Node, sizes: Sequence[int | None]) -> None:
        """Declare the sizes of a Parameter, ReadValue, Result or Assign; ``None`` keeps a size."""

    @abstractmethod
    def forget_shapes(self, values: Iterable[Value] | None = None) -> None:
        """Remove declared shapes of ``values``, or of all computed values; inputs keep theirs."""

    @abstractmethod
    def mark_permuted(self, value: Value, order: Sequence[int]) -> None:
        """Permute the recorded shape of ``value`` by ``order``."""

    @abstractmethod
    def finish(self) -> bool:
        """Remove dead nodes, sort, and infer shapes; return whether the model was edited."""


class Writer:
    """Creates nodes named ``<prefix>/<label>``, with a number if the label was used before."""

    def __init__(self, rewriter: Rewriter, prefix: str) -> None:
        """Create a writer; see `Rewriter.under`."""
        self._rewriter = rewriter
        self._prefix = prefix
        self._used: dict[str, int] = {}

    def op(self, kind: str, *inputs: Operand, label: str = "", name: str = "", **attributes: Any) -> Handle:
        """Create an operator with one output; see `Rewriter.make`.

        Args:
            kind: The operator.
            inputs: Its operands.
            label: Last part of the node's name; ``kind`` by default.
            name: The full name of the node, in place of prefix and label.
            attributes: Its attributes.
        """
        return self._rewriter.make(kind, inputs, name or self._name(label or kind), 1, attributes)[0]

    def outputs(self, kind: str, *inputs: Operand, count: int, label: str = "", **attributes: Any) -> list[Handle]:
        """Create an operator with ``count`` outputs."""
        return self._rewriter.make(kind, inputs, self._name(label or kind), count, attributes)

    def clone(self, node: Node, *inputs: Operand) -> Handle:
        """Create a copy of ``node``, which has one output, with these inputs."""
        return self._rewriter.clone(node, dict(enumerate(inputs)), self._name(node.op))

    def constant(
        self, values: int | Sequence[int] | numpy.ndarray, label: str = "Constant", element_type: str = ""
    ) -> Handle:
        """Create a constant of ``element_type``, by default the array's type, or i64 for integers."""
        kind = element_type or ("i64" if isinstance(values, int | list | tuple | range) else "")
        return self._rewriter.constant(values, kind, self._name(label))

    def number(self, value: float | bool, element_type: str, label: str = "Constant") -> Handle:
        """Create a constant scalar."""
        return self._rewriter.constant(value, element_type, self._name(label))

    def convert(self, operand: Operand, element_type: str, label: str = "converted") -> Handle:
        """Create a Convert, unless ``operand`` has this type already."""
        handle = self._rewriter.handle(operand)
        if self._rewriter.type_of(handle) == element_type:
            return handle
        return self.op("Convert", handle, to=element_type, label=label)

    def size(self, operand: Operand, axis: int, label: str = "Size", shape: Handle | None = None) -> Handle:
        """Create one dimension of a tensor, i64 ``[1]``, from ``shape`` if passed."""
        return self._rewriter.size(operand, axis, self._name(label), shape)

    def slice(
        self, operand: Operand, start: Operand, stop: Operand, axis: int, *, label: str = "Slice", name: str = ""
    ) -> Handle:
        """Create ``operand[start:stop]`` along ``axis``; see `op` for names.

        Bounds are integers or tensors i64 ``[1]``. Without ``stop`` the slice is unbounded.
        """
        first, last = (
            [bound] if isinstance(bound, int) else bound for bound in (start, NO_STOP if stop is None else stop)
        )
        return self.op("Slice", operand, first, last, axes=[axis], label=label, name=name)

    def split(self, operand: Operand, axis: int, sizes: Sequence[int], label: str = "Split") -> list[Handle]:
        """Create the operator that splits ``operand`` along ``axis`` into ``sizes``."""
        return self._rewriter.split(operand, axis, sizes, self._name(label))

    def _name(self, label: str) -> str:
        count = self._used[label] = self._used.get(label, -1) + 1
        return f"{self._prefix}/{label}" + (f"_{count}" if count else "")
