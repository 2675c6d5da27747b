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

from abc import abstractmethod
from typing import TYPE_CHECKING

from graphpass.ir.writer import NodeMaker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from graphpass.ir.graph import Graph, Node, Use, Value
    from graphpass.ir.types import Dimension
    from graphpass.ir.writer import Handle, Operand


def claim_name(taken: set[str], name: str) -> str:
    """Return an unused name, and add it to ``taken``.

    Args:
        taken: All names in use.
        name: The requested name; ``_2``, ``_3`` ... is appended if it is in use.
    """
    number, unused = 1, name
    while unused in taken:
        number += 1
        unused = f"{name}_{number}"
    taken.add(unused)
    return unused


class Rewriter(NodeMaker):
    """Edits one model once; `finish` completes the edits.

    Attributes:
        graph: The view of the model when the rewriter was created.
    """

    graph: Graph

    @abstractmethod
    def input(self, name: str, element_type: str, shape: Sequence[Dimension] | None) -> Handle:
        """Add an input to the model.

        Args:
            name: Name of the input; an inner tensor with this name is renamed.
            element_type: OpenVINO's short name.
            shape: One entry per dimension; a string or ``None`` is a dimension that is not fixed. ``None`` for an
                input of any rank.

        Returns:
            The tensor of the input.
        """

    @abstractmethod
    def output(self, name: str, source: Handle, element_type: str, shape: Sequence[Dimension]) -> None:
        """Add an output to the model.

        Args:
            name: Name of the output; an inner tensor with this name is renamed.
            source: The tensor to return.
            element_type: OpenVINO's short name of its type, for dialects that declare outputs.
            shape: Its dimensions, for the same declaration.
        """

    @abstractmethod
    def replace(self, old: Value, new: Handle) -> None:
        """Redirect all users of a value, model outputs included, and transfer its names.

        Args:
            old: The value; as an operand it means ``new`` afterwards, so later rewrites build on this one.
            new: The tensor that replaces it.
        """

    @abstractmethod
    def redirect_uses(self, old: Operand, new: Handle, only: Callable[[Use], bool] | None = None) -> int:
        """Redirect uses of a tensor, except model outputs.

        Args:
            old: The tensor.
            new: The tensor to read in its place.
            only: Returns whether to redirect a use of a `Value`; ``None`` redirects all. Ignored if ``old`` is a
                `Handle`.

        Returns:
            The number of redirected uses.
        """

    @abstractmethod
    def redirect(self, node: Node, port: int, source: Operand) -> None:
        """Set a present input of a node; an output of the model keeps its name.

        Args:
            node: The node; a Result for an output of the model.
            port: Index of the input.
            source: The new operand.
        """

    @abstractmethod
    def set_input(self, node: Node, port: int, source: Operand) -> None:
        """Set an input of a node, which may be omitted so far.

        Args:
            node: The node.
            port: Index of the input.
            source: The new operand.
        """

    @abstractmethod
    def add_past(self, like: Node, name: str, sizes: Sequence[int | None], initial: Handle | None) -> Handle:
        """Add a cache's past.

        Args:
            like: The Parameter or ReadValue whose type and dimensions are copied.
            name: Name of the input or variable.
            sizes: The dimensions, of any number: ``None`` copies the dimension of ``like`` at the same index, -1 drops
                the dimension.
            initial: Initial value of a variable.

        Returns:
            The past: the tensor of the input or ReadValue.
        """

    @abstractmethod
    def add_present(self, like: Node, name: str, sizes: Sequence[int | None], source: Handle) -> None:
        """Add a cache's present: the output or Assign that pairs with `add_past`.

        Args:
            like: The Result or Assign whose type and dimensions are copied.
            name: Name of the output, or of the variable of `add_past`.
            sizes: The dimensions, as in `add_past`.
            source: The cache after the step.
        """

    @abstractmethod
    def drop(self, nodes: Iterable[Node]) -> None:
        """Remove Parameters, ReadValues, Results and Assigns without users, with their variables."""

    @abstractmethod
    def drop_input(self, name: str) -> bool:
        """Remove the input named ``name`` if it has no users.

        Returns:
            Whether it was removed.
        """

    @abstractmethod
    def rename_ports(self, names: Mapping[Node, str]) -> None:
        """Rename inputs and outputs of the model, which may exchange names.

        Args:
            names: New names by Parameter and Result; an inner tensor with such a name is renamed.
        """

    @abstractmethod
    def declare_type(self, target: Value | Node, element_type: str) -> None:
        """Declare the element type of an input; in ONNX, of any tensor.

        Args:
            target: The value; a Parameter or Result for an input or output of the model.
            element_type: OpenVINO's short name, ``f16``.
        """

    @abstractmethod
    def whole_shape(self, node: Node) -> tuple[int, ...]:
        """Remove start and end from a ShapeOf.

        Returns:
            The axes that it selected, in order.
        """

    @abstractmethod
    def set_axes(self, node: Node, axes: Sequence[int]) -> None:
        """Set the axes of an operator.

        Args:
            node: A Transpose, or an operator with the neutral attribute ``axis`` or ``axes``.
            axes: The order of a Transpose; otherwise the axes, a single one for ``axis``.
        """

    @abstractmethod
    def set_shape(self, reshape: Node, shape: Sequence[int]) -> None:
        """Set the target shape of a Reshape.

        Args:
            reshape: The Reshape.
            shape: One entry per output dimension; 0 copies the dimension of the input, -1 is inferred.
        """

    @abstractmethod
    def transpose_port(self, node: Node, order: Sequence[int]) -> None:
        """Permute the declared axes of an input, output or variable.

        Args:
            node: A Parameter, ReadValue, Result or Assign.
            order: For each new axis, the index of the declared axis.
        """

    @abstractmethod
    def resize_port(self, node: Node, sizes: Sequence[int | None]) -> None:
        """Declare the sizes of an input, output or variable.

        Args:
            node: A Parameter, ReadValue, Result or Assign.
            sizes: One entry per axis; ``None`` keeps a size.
        """

    @abstractmethod
    def forget_shapes(self, values: Iterable[Value] | None = None) -> None:
        """Remove declared shapes of ``values``, or of all computed values; inputs keep theirs."""

    @abstractmethod
    def mark_permuted(self, value: Value, order: Sequence[int]) -> None:
        """Permute the recorded shape of a value.

        Args:
            value: A value whose axes another edit permuted.
            order: For each new axis, the index of the recorded axis.
        """

    @abstractmethod
    def finish(self) -> bool:
        """Remove dead nodes, sort, and infer shapes.

        Returns:
            Whether the model was edited.
        """
