"""Distinguish positions in use from slots; see the pass `static-cache`."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from graphpass.analysis.symbolic.expressions import Expr
from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.errors import UnsupportedError
from graphpass.ir.cache import Cache
from graphpass.ir.graph import Node, Use, Value
from graphpass.ir.inputs import TOKEN_INPUTS
from graphpass.ir.model import Model
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.writer import Handle, Operand
from graphpass.passes.attention.step_builder import StepBuilder

#: Inputs whose second axis is the length of new tokens.
_TOKENS = (*TOKEN_INPUTS, "decoder_input_ids")

#: Operators that compute shapes from shapes.
_SHAPE_ARITHMETIC = frozenset(
    {"Add", "Concat", "ConstantOfShape", "Convert", "Divide", "Equal", "Gather", "Identity", "Multiply", "Negative"}
    | {"ReduceProd", "Reshape", "Select", "ShapeOf", "Slice", "Squeeze", "Subtract", "Unsqueeze"}
)


def refusal(cache: Cache, reason: str) -> UnsupportedError:
    """Return the error GP391.

    Args:
        cache: The cache that cannot have a fixed capacity.
        reason: A predicate with the cache as implied subject: ``is read by ...``.
    """
    return UnsupportedError(
        "GP391",
        f"cache {cache.name} cannot have a fixed capacity: it {reason}",
        "graphpass inspect shows how it is updated and read",
    )


class PositionsInUse:
    """Lengths, padding and shapes in a graph whose caches get a fixed capacity.

    Attributes:
        past: Number of positions before the step, i64 [1].
        total: Number of positions after it.
        buffers: Replacements of values that are now written in place.
    """

    def __init__(self, model: Model, rewriter: Rewriter, capacity: int) -> None:
        """Write both lengths, or add an input for the past.

        Raises:
            UnsupportedError: GP391, the model has no input of tokens.
        """
        self._rewriter, self._graph = rewriter, rewriter.graph
        self._sizes = model.analysis(infer_sizes)
        self._write = rewriter.under("static_cache")
        self._capacity = self._write.constant([capacity])
        self._rows: dict[int, Handle] = {}
        self._padded: dict[Value, Handle] = {}
        self.buffers: dict[Value, Handle] = {}
        inputs = self._graph.parameters
        tokens = next((inputs[name] for name in _TOKENS if name in inputs), None)
        if tokens is None:
            raise UnsupportedError(
                "GP391", f"the model has no input {' or '.join(_TOKENS)}, which has the length of the new tokens"
            )
        step = StepBuilder(model, rewriter, tokens, adds_input=True)
        self.past, self.total = step.of("past"), step.of("total")

    def latest(self, value: Value) -> Operand:
        """Return ``value``, or the buffer that replaces it."""
        return self.buffers.get(value, value)

    def for_each_row(self, number: Handle, new: Value) -> Handle:
        """Broadcast a number to the batch size.

        Args:
            number: The number, i64 [1].
            new: A tensor ``[batch, ...]``.

        Returns:
            i64 ``[batch]``.
        """
        if id(number) not in self._rows:
            rows = self._write.size(new, 0)
            self._rows[id(number)] = self._write.op("Broadcast", number, rows, label="for_each_row")
        return self._rows[id(number)]

    def padded(self, value: Value) -> Handle:
        """Pad the last axis of ``value`` to the capacity.

        Returns:
            The padded tensor, in the type of ``value``.

        Raises:
            UnsupportedError: GP391, the rank of ``value`` is unknown.
        """
        if value not in self._padded:
            if value.rank is None:
                raise UnsupportedError("GP391", f"the rank of {value.name} is unknown, so it cannot be padded")
            free = self._write.op("Subtract", self._capacity, self.total, label="free")
            ends = self._write.op("Concat", [0] * (2 * value.rank - 1), free, axis=0, label="ends")
            self._padded[value] = self._write.op("Pad", value, ends, label="padded", domain="")
        return self._padded[value]

    def keep_shape(self, value: Value, axis: int | None, length: Handle, cache: Cache) -> None:
        """Redirect users of the shape of a buffer to a shape with ``length`` positions.

        Args:
            value: The buffer.
            axis: The axis of slots; ``None`` if unknown.
            length: Number of positions, i64 [1].
            cache: The cache, for messages.

        Raises:
            UnsupportedError: GP391, the axis is unknown, and the shape is not only a stop of slices.
        """
        write = self._write
        for node in [use.node for use in self._graph.uses(value) if use.node.op == "ShapeOf"]:
            if axis is None:
                self._check_only_bounds(node, cache)
            elif node.attributes or not self._replace_picks(node, axis, length):
                whole = write.op("ShapeOf", self.latest(value), label="all_slots")
                parts = [write.slice(whole, 0, axis, 0), length, write.slice(whole, axis + 1, None, 0)]
                shape = write.op("Concat", *(parts[1:] if axis == 0 else parts), axis=0, label="positions")
                start, end = node.attributes.get("start", 0), node.attributes.get("end")
                self._rewriter.replace(node.outputs[0], write.slice(shape, start, end, 0, label="shape"))

    def _replace_picks(self, shape: Node, axis: int, length: Handle) -> bool:
        """Replace Gathers of dimension ``axis`` by ``length``, unless there are other users.

        Returns:
            Whether they were replaced.
        """
        uses = self._graph.uses(shape.outputs[0])
        picks = [self._graph.constant(use.node.inputs[1], 1) if use.node.op == "Gather" else None for use in uses]
        if any(index is None or index.size != 1 or index.item() != axis for index in picks):
            return False
        for use, index in zip(uses, picks, strict=True):
            is_number = index is not None and index.ndim == 0
            made = self._write.op("Squeeze", length, axes=[0]) if is_number else self._write.op("Identity", length)
            self._rewriter.replace(use.node.outputs[0], made)
        return True

    def _check_only_bounds(self, shape: Node, cache: Cache) -> None:
        """Check that a shape is only a stop of slices, which may exceed the length.

        Raises:
            UnsupportedError: GP391, the shape has another user.
        """  # noqa: DOC501 - refusal is an UnsupportedError

        def bounds(use: Use) -> bool:
            return use.node.op == "Slice" and use.port == 2

        for use in self._graph.forward(shape.outputs, lambda use: () if bounds(use) else use.node.outputs):
            is_arithmetic = use.node.op in _SHAPE_ARITHMETIC and (use.node.op != "Slice" or use.port == 0)
            if not is_arithmetic and not bounds(use):
                raise refusal(cache, f"has a length that {use.node.called} reads after a Reshape")

    def keep_layout(self, slots: Mapping[Value, int | None], nodes: Iterable[Node]) -> None:
        """Replace the length by the capacity in the shapes that layout operators ``nodes`` read.

        Args:
            slots: Values with an axis of slots, and the axis if known.
            nodes: Layout operators of these values.
        """
        shapes = ((self._sizes.shape(value), axis) for value, axis in slots.items() if axis is not None)
        lengths = frozenset(shape[axis] for shape, axis in shapes if shape is not None)
        copies: dict[Value, Handle] = {}
        for node in nodes:
            for port, value in enumerate(node.inputs[1:], 1):
                if value is not None:
                    self._copy_arithmetic(value, slots, lengths, copies)
                    if value in copies:
                        self._rewriter.redirect(node, port, copies[value])

    def _copy_arithmetic(
        self, value: Value, slots: Mapping[Value, int | None], lengths: Container[Expr], copies: dict[Value, Handle]
    ) -> None:
        """Clone the arithmetic between shapes of ``slots``, or one of their ``lengths``, and ``value``."""

        def is_arithmetic(node: Node) -> bool:
            return node.op in _SHAPE_ARITHMETIC and len(node.outputs) == 1

        def is_length(node: Node) -> bool:
            is_size = is_arithmetic(node) and node.outputs[0].element_type == "i64"
            integers = self._sizes.integers(node.outputs[0]) if is_size else None
            return integers is not None and len(integers) == 1 and integers[0] in lengths

        def sources(node: Node) -> tuple[Value | None, ...]:
            return node.inputs if is_arithmetic(node) and node.op != "ShapeOf" and not is_length(node) else ()

        for node in sorted(self._graph.backward([value], sources), key=lambda node: node.index):
            if is_length(node) and node.outputs[0] not in copies:
                is_number = node.outputs[0].rank == 0
                copies[node.outputs[0]] = (
                    self._write.op("Squeeze", self._capacity, axes=[0]) if is_number else self._capacity
                )
            inputs = {port: copies[source] for port, source in enumerate(node.inputs) if source in copies}
            reads_slots = node.op == "ShapeOf" and node.source() in slots
            if (reads_slots or (inputs and is_arithmetic(node))) and node.outputs[0] not in copies:
                copies[node.outputs[0]] = self._rewriter.clone(node, inputs, f"{node.outputs[0].name}/of_all_slots")
