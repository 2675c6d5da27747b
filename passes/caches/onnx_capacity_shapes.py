"""Lets shape arithmetic see the positions in use, or all slots, of caches of fixed capacity; see `static-cache`."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import onnx

from graphpass.dialects.onnx.rewrite import node_name
from graphpass.passes.caches.onnx_capacity import refusal

if TYPE_CHECKING:
    import numpy

    from graphpass.ir.cache import Cache
    from graphpass.passes.caches.onnx_capacity import CapacityRewrite

__all__ = ["CapacityShapes"]

#: Operators that compute shapes out of shapes.
_ARITHMETIC = frozenset(
    {"Add", "Cast", "Concat", "ConstantOfShape", "Div", "Equal", "Gather", "Identity", "Mul", "Neg", "ReduceProd"}
    | {"Reshape", "Shape", "Slice", "Squeeze", "Sub", "Unsqueeze", "Where"}
)


class CapacityShapes:
    """Who reads the shape of a cache, and what they are told."""

    def __init__(self, rewrite: CapacityRewrite) -> None:
        """In this graph."""
        self._rewrite = rewrite

    def keep_shape(self, name: str, axis: int | None, length: str, cache: Cache | None = None) -> None:
        """Let those that read the shape of ``name`` see ``length`` positions along ``axis``.

        Args:
            name: The value.
            axis: Which axis counts slots; ``None`` where that is not known.
            length: The name of what to tell them, i64 [1].
            cache: Whose buffer it is, for messages.

        Raises:
            UnsupportedError: GP391, the axis is not known, and the shape is used for more than bounds of slices.
        """
        writer = self._rewrite.writer
        for node, _ in self._rewrite.readers(name):
            if node.op_type != "Shape":
                continue
            if axis is None:
                self._check_only_bounds(node, cache)
                continue
            if self._tell_length(node, axis, length):
                continue
            whole = writer.op("Shape", name, label="all_slots")
            parts = [writer.slice(whole, 0, axis, 0), length, writer.slice(whole, axis + 1, None, 0)]
            given = {attribute.name: attribute.i for attribute in node.attribute}
            shape = writer.op("Concat", *(parts[1:] if axis == 0 else parts), axis=0, label="positions")
            start, end = given.get("start", 0), given.get("end")
            writer.slice(shape, start, end, 0, output=node.output[0], label="shape")
            self._rewrite.gone.append(node)

    def keep_layout(self, path: dict[str, int | None], steps: list[onnx.NodeProto]) -> None:
        """Let what lays the cache out go on by the buffer's shape: by a copy of the arithmetic that tells it.

        Args:
            path: All values that hold slots of the cache, and which axis counts them.
            steps: The nodes between them.
        """
        copies: dict[str, str] = {}
        for node in steps:
            for port in range(1, len(node.input)):
                node.input[port] = self._copied(node.input[port], path, copies)

    def _copied(self, name: str, path: dict[str, int | None], copies: dict[str, str]) -> str:
        """``name``, or a copy of it where it is computed from the shape of a value on the ``path``."""
        cone = self._cone(name)
        for node in reversed(cone):
            if node.output[0] in copies:
                continue
            reads_path = node.op_type == "Shape" and node.input[0] in path
            if not reads_path and not any(source in copies for source in node.input):
                continue
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.name = copy.output[0] = copies[node.output[0]] = f"{node.output[0]}/of_all_slots"
            for port, source in enumerate(node.input):
                copy.input[port] = copies.get(source, source)
            self._rewrite.writer.nodes.append(copy)
        return copies.get(name, name)

    def _cone(self, name: str) -> list[onnx.NodeProto]:
        """The shape arithmetic behind ``name``, readers before what they read."""
        found: dict[int, onnx.NodeProto] = {}
        pending = [name]
        while pending:
            node = self._rewrite.names.makers.get(pending.pop())
            if node is None or node.op_type not in _ARITHMETIC or len(node.output) != 1:
                continue
            found.pop(id(node), None)
            found[id(node)] = node
            if node.op_type != "Shape":
                pending += node.input
        return list(found.values())

    def _tell_length(self, shape: onnx.NodeProto, axis: int, length: str) -> bool:
        """Give ``length`` itself to those who take but that from a shape; whether that is all who read it."""
        readers = self._rewrite.readers(shape.output[0])
        indices = [self._constants.get(node.input[1]) if node.op_type == "Gather" else None for node, _ in readers]
        if shape.attribute or any(index is None or index.size != 1 or index.item() != axis for index in indices):
            return False
        for (node, _), index in zip(readers, indices, strict=True):
            assert index is not None
            given = (length, self._rewrite.writer.integers([0])) if index.ndim == 0 else (length,)
            self._rewrite.writer.op(
                "Squeeze" if index.ndim == 0 else "Identity", *given, output=node.output[0], label="length"
            )
            self._rewrite.gone.append(node)
        self._rewrite.gone.append(shape)
        return True

    @functools.cached_property
    def _constants(self) -> dict[str, numpy.ndarray | None]:
        graph = self._rewrite.model.graph
        return {node.outputs[0].name: graph.constant(node.outputs[0], 1) for node in graph.of_op("Constant")}

    def _check_only_bounds(self, shape: onnx.NodeProto, cache: Cache | None) -> None:
        """That sizes of which no axis is known only bound slices from above: more slots than positions do no harm."""
        pending, seen = list(shape.output), set()
        while pending:
            for node, port in self._rewrite.readers(pending.pop()):
                if node.op_type == "Slice" and port == 2:
                    continue
                if node.op_type not in _ARITHMETIC or (node.op_type == "Slice" and port > 0):
                    assert cache is not None
                    raise refusal(cache, f"has its length read by {node.op_type} {node_name(node)} behind a Reshape")
                if node.output[0] not in seen:
                    seen.add(node.output[0])
                    pending.append(node.output[0])
