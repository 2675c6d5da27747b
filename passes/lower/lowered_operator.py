"""`LoweredOperator`: an operator to lower, and helpers that write its replacement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graphpass.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    import onnx_graphsurgeon as gs

    from graphpass.dialects.onnx.rewriter import OnnxRewriter
    from graphpass.ir.graph import Node, Value
    from graphpass.ir.types import Dimension
    from graphpass.ir.writer import Handle, Writer


@dataclass(frozen=True)
class LoweredOperator:
    """An operator to lower.

    Attributes:
        rewriter: Rewriter of the model.
        native: The operator in onnx-graphsurgeon, with earlier edits of its inputs.
        node: The operator in the graph, with inferred shapes; ``None`` in a body or function.
        write: Writer of nodes under the operator's name.
        shared: Tensors that several operators read; see `once`.
    """

    rewriter: OnnxRewriter
    native: gs.Node
    node: Node | None
    write: Writer
    shared: dict[Hashable, Any]

    @property
    def name(self) -> str:
        """Name of the operator, or of its first output if the name is empty."""
        name: str = self.native.name or self.native.outputs[0].name
        return name

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return the value of an attribute.

        Args:
            name: Name in ONNX.
            default: Value of an omitted attribute.
        """
        return self.native.attrs.get(name, default)

    def read(self, port: int) -> Handle:
        """Return the tensor at an input; ``None`` if it is omitted."""
        inputs = self.native.inputs
        return inputs[port] if port < len(inputs) and inputs[port].name else None

    def value(self, port: int) -> Value | None:
        """Return the graph's value at an input; ``None`` if omitted or in a body."""
        return self.node.inputs[port] if self.node is not None and port < len(self.node.inputs) else None

    def size(self, port: int, axis: int) -> Dimension:
        """Return a dimension of an input; ``None`` if its shape is unknown.

        Args:
            port: Index of the input.
            axis: Index of the dimension; may be negative.
        """
        value = self.value(port)
        return value.shape[axis] if value is not None and value.shape else None

    def once(self, key: Hashable, make: Callable[[], Handle]) -> Handle:
        """Return a tensor that is written once per model.

        Args:
            key: Identity of the tensor among those of all operators to lower.
            make: Writes the tensor; called for the first use of ``key``.
        """
        if key not in self.shared:
            self.shared[key] = make()
        return self.shared[key]

    def factor(self, number: float, element_type: str) -> Handle:
        """Return a new scalar by which kernels multiply in f32.

        In 16 bits it is an f32 constant with a Convert, so that a change of precision to f32 restores the number.

        Args:
            number: The scalar.
            element_type: OpenVINO's short name of the type of the result.
        """
        scalar = self.write.number(number, "f32")
        return scalar if element_type == "f32" else self.write.convert(scalar, element_type)

    def replace(self, port: int, new: Handle) -> None:
        """Replace an output; an omitted output is ignored.

        Args:
            port: Index of the output.
            new: The new tensor.
        """
        if self.node is not None and port < len(self.node.outputs) and self.node.outputs[port].name:
            self.rewriter.replace(self.node.outputs[port], new)

    def refusal(self, reason: str, hint: str | None = None) -> UnsupportedError:
        """Return the error GP341.

        Args:
            reason: The reason, as a sentence about the operator: ``its activation is gelu``.
            hint: Advice to the user, if any.
        """
        return UnsupportedError("GP341", f"{self.native.op} {self.name} cannot be lowered: {reason}", hint)
