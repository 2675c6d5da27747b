"""`Rewriter`: edit a model of either dialect through the nodes and values of its `Graph`.

Operators are made by their neutral names (``Multiply``, ``Select``, ``Broadcast`` ...) with axes as attributes,
whatever the dialect makes of them:

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
"""A `Value` of the graph, a `Handle`, whole numbers that become an i64 constant, or ``None`` for an omitted input."""

#: Where slices stop that keep all that follows.
NO_STOP = 2**63 - 1


def claim_name(taken: set[str], name: str) -> str:
    """Return ``name``, numbered if it is taken, and take it."""
    number, unused = 1, name
    while unused in taken:
        number += 1
        unused = f"{name}_{number}"
    taken.add(unused)
    return unused


class Rewriter(ABC):
    """Edits one model, once; `finish` completes the edits.

    Attributes:
        graph: The model as it was when the rewriter was made.
    """

    graph: Graph

    def under(self, prefix: str) -> Writer:
        """Return a writer of new nodes whose names begin with ``prefix``."""
        return Writer(self, prefix)

    def handle(self, operand: Operand, name: str = "") -> Handle:
        """Return the native tensor of ``operand``; numbers become a constant called ``name``."""
        if operand is None or not isinstance(operand, Value | int | list | tuple | range):
            return operand
        return self.native(operand) if isinstance(operand, Value) else self.constant(operand, "i64", name)

    @abstractmethod
    def native(self, value: Value) -> Handle:
        """Return the native tensor of a value of `graph`, after earlier edits."""

    @abstractmethod
    def type_of(self, handle: Handle) -> str:
        """Return the element type of a tensor; ``"dynamic"`` if unknown."""

    @abstractmethod
    def make(
        self, kind: str, inputs: Sequence[Operand], name: str, count: int, neutral: Mapping[str, Any]
    ) -> list[Handle]:
        """Make an operator.

        Args:
            kind: Its neutral name, or the native one of an operator that has none.
            inputs: Its operands, without axes and sizes that are attributes in the neutral form.
            name: Name of the node, and of its first output in ONNX.
            count: Number of outputs.
            neutral: Attributes: ``axis`` (Concat, Gather, Softmax, ScatterElementsUpdate ...), ``axes`` (Squeeze,
                Unsqueeze, Slice, reductions), ``order`` (Transpose), ``to`` (Convert), ``keep`` (reductions), ``mode``
                (Broadcast: ``numpy`` or ``bidirectional``), ``zero_keeps`` (Reshape); others go to the operator.
        """

    def op(self, kind: str, *inputs: Operand, name: str, **attributes: Any) -> Handle:
        """Make an operator with one output; see `make`."""
        return self.make(kind, inputs, name, 1, attributes)[0]

    def split(self, operand: Operand, axis: int, sizes: Sequence[int], name: str) -> list[Handle]:
        """Make the parts of ``operand`` along ``axis``."""
        return self.make("VariadicSplit", [operand, list(sizes)], name, len(sizes), {"axis": axis})

    @abstractmethod
    def constant(self, values: Any, element_type: str, name: str) -> Handle:
        """Make a constant of a number, a sequence or an array."""

    @abstractmethod
    def input(self, name: str, element_type: str, shape: Sequence[Dimension]) -> Handle:
        """Add an input; text and ``None`` stand for dimensions that are not fixed."""

    @abstractmethod
    def output(self, name: str, source: Handle, element_type: str, shape: Sequence[Dimension]) -> None:
        """Add an output; an existing tensor with this name is renamed."""

    @abstractmethod
    def size(self, operand: Operand, axis: int, name: str, shape: Handle | None = None) -> Handle:
        """Make one dimension of a tensor, i64 ``[1]``; of its ``shape``, if written."""

    @abstractmethod
    def clone(self, node: Node, inputs: Mapping[int, Operand], name: str, axes: Sequence[int] | None = None) -> Handle:
        """Clone ``node``, of one output, with other inputs and axes (see `set_axes`)."""

    @abstractmethod
    def replace(self, old: Value, new: Handle) -> None:
        """Redirect the users and names of ``old``, model outputs included, to ``new``.

        From then on ``old`` as an operand means ``new``, so that later rewrites build on earlier ones.
        """

    @abstractmethod
    def redirect_uses(self, old: Operand, new: Handle, only: Callable[[Use], bool] | None = None) -> int:
        """Redirect users of ``old`` that meet ``only``, model outputs excepted; return their number."""

    @abstractmethod
    def redirect(self, node: Node, port: int, source: Operand) -> None:
        """Set input ``port`` of ``node`` to ``source``. An output of the model keeps its name."""

    @abstractmethod
    def set_input(self, node: Node, port: int, source: Operand) -> None:
        """Set input ``port`` of ``node``, which it may omit so far, to ``source``."""

    @abstractmethod
    def add_past(self, like: Node, name: str, sizes: Sequence[int | None], initial: Handle | None) -> Handle:
        """Add a carried tensor.

        Args:
            like: The Parameter or ReadValue that gives its type and dimensions.
            name: Name of the input or variable.
            sizes: The dimensions: ``None`` keeps that of ``like`` in this place, -1 drops it. Their number may differ.
            initial: Initial value of a variable.
        """

    @abstractmethod
    def add_present(self, like: Node, name: str, sizes: Sequence[int | None], source: Handle) -> None:
        """Add the output or Assign that belongs to `add_past`, with its arguments."""

    @abstractmethod
    def drop(self, nodes: Iterable[Node]) -> None:
        """Remove Parameters, ReadValues, Results and Assigns, with their variables; nothing reads them by now."""

    @abstractmethod
    def drop_input(self, name: str) -> bool:
        """Remove the input called ``name`` if nothing reads it; return whether it went."""

    @abstractmethod
    def whole_shape(self, node: Node) -> tuple[int, ...]:
        """Remove start and end from a ShapeOf; return the axes that it selected."""

    @abstractmethod
    def set_axes(self, node: Node, axes: Sequence[int]) -> None:
        """Set the axes of ``node``: a Transpose's order, a Concat's or Gather's axis."""

    @abstractmethod
    def set_shape(self, reshape: Node, shape: Sequence[int]) -> None:
        """Set the shape of a Reshape; 0 keeps a dimension, -1 is inferred."""

    @abstractmethod
    def transpose_port(self, node: Node, order: Sequence[int]) -> None:
        """Permute the declared axes of a Parameter, ReadValue, Result or Assign."""

    @abstractmethod
    def resize_port(self, node: Node, sizes: Sequence[int | None]) -> None:
        """Declare sizes of a Parameter, ReadValue, Result or Assign; ``None`` keeps one."""

    @abstractmethod
    def forget_shapes(self, values: Iterable[Value] | None = None) -> None:
        """Drop declared shapes of ``values``, or of all that is computed; inputs keep theirs."""

    @abstractmethod
    def mark_permuted(self, value: Value, order: Sequence[int]) -> None:
        """Record that the axes of ``value`` now have this order."""

    @abstractmethod
    def finish(self) -> bool:
        """Remove dead nodes, sort, infer shapes; return whether the model was edited."""


class Writer:
    """Makes nodes named ``<prefix>/<label>``, with a number if the label was used before."""

    def __init__(self, rewriter: Rewriter, prefix: str) -> None:
        """Create a writer; see `Rewriter.under`."""
        self._rewriter = rewriter
        self._prefix = prefix
        self._used: dict[str, int] = {}

    def op(self, kind: str, *inputs: Operand, label: str = "", name: str = "", **attributes: Any) -> Handle:
        """Make an operator with one output; see `Rewriter.make`.

        Args:
            kind: The operator.
            inputs: Its operands.
            label: Last part of its name; its kind by default.
            name: Its whole name, instead of a label.
            attributes: Its attributes.
        """
        return self._rewriter.make(kind, inputs, name or self._name(label or kind), 1, attributes)[0]

    def outputs(self, kind: str, *inputs: Operand, count: int, label: str = "", **attributes: Any) -> list[Handle]:
        """Make an operator with ``count`` outputs."""
        return self._rewriter.make(kind, inputs, self._name(label or kind), count, attributes)

    def clone(self, node: Node, *inputs: Operand) -> Handle:
        """Make a copy of ``node``, which has one output, with these inputs."""
        return self._rewriter.clone(node, dict(enumerate(inputs)), self._name(node.op))

    def constant(
        self, values: int | Sequence[int] | numpy.ndarray, label: str = "Constant", element_type: str = ""
    ) -> Handle:
        """Make a constant: of an ``element_type`` or of the array's type; i64 of whole numbers."""
        kind = element_type or ("i64" if isinstance(values, int | list | tuple | range) else "")
        return self._rewriter.constant(values, kind, self._name(label))

    def number(self, value: float | bool, element_type: str, label: str = "Constant") -> Handle:
        """Make a constant without dimensions."""
        return self._rewriter.constant(value, element_type, self._name(label))

    def convert(self, operand: Operand, element_type: str, label: str = "converted") -> Handle:
        """Make a Convert, unless ``operand`` is of this type."""
        handle = self._rewriter.handle(operand)
        if self._rewriter.type_of(handle) == element_type:
            return handle
        return self.op("Convert", handle, to=element_type, label=label)

    def size(self, operand: Operand, axis: int, label: str = "Size", shape: Handle | None = None) -> Handle:
        """Make one dimension of a tensor, i64 ``[1]``; of its ``shape``, if written."""
        return self._rewriter.size(operand, axis, self._name(label), shape)

    def slice(
        self, operand: Operand, start: Operand, stop: Operand, axis: int, *, label: str = "Slice", name: str = ""
    ) -> Handle:
        """Make ``operand[start:stop]`` along ``axis``; see `op` for names.

        Bounds are numbers or tensors i64 ``[1]``; without ``stop`` all that follows is kept.
        """
        first, last = (
            [bound] if isinstance(bound, int) else bound for bound in (start, NO_STOP if stop is None else stop)
        )
        return self.op("Slice", operand, first, last, axes=[axis], label=label, name=name)

    def split(self, operand: Operand, axis: int, sizes: Sequence[int], label: str = "Split") -> list[Handle]:
        """Make the parts of ``operand`` along ``axis``."""
        return self._rewriter.split(operand, axis, sizes, self._name(label))

    def _name(self, label: str) -> str:
        count = self._used[label] = self._used.get(label, -1) + 1
        return f"{self._prefix}/{label}" + (f"_{count}" if count else "")
