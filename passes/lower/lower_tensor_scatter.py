"""The pass `lower-tensor-scatter`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.rewrite import NodeWriter, attributes, input_at, node_name, rewrite_nodes
from graphpass.engine.passes import Changed, Pass, PassResult, Unchanged
from graphpass.errors import UnsupportedError
from graphpass.ir.types import Dialect

if TYPE_CHECKING:
    import onnx

    from graphpass.ir.graph import Node

__all__ = ["LowerTensorScatter"]

_CACHE, _UPDATE, _START = range(3)


@dataclass(frozen=True)
class LowerTensorScatter(Pass[OnnxModel]):
    """Write TensorScatter, of opset 24, as ScatterElements.

    OpenVINO's frontend has no rule for the operator (2026.4.1). The cache keeps its capacity: it is written in place.

    Shapes:
        cache ``[batch, .., capacity, ..]``, update ``[batch, .., length, ..]``, where to write ``[batch]``.

    Before:
        TensorScatter(cache, update, write_indices)
    After:
        positions = write_indices + Range(0, length), modulo capacity where circular; ScatterElements(cache, Expand(
        positions, Shape(update)), update)

    Raises:
        UnsupportedError: GP340 an opset before 13; GP341 the rank of the cache is not known.
    """

    name: ClassVar[str] = "lower-tensor-scatter"
    dialect: ClassVar[Dialect | None] = "onnx"

    def run(self, model: OnnxModel) -> PassResult:
        """See `Pass.run`."""
        known = {node.outputs[0].name: node for node in model.graph.of_op("TensorScatter")}
        count = rewrite_nodes(
            model,
            lambda native: native.op_type == "TensorScatter",
            lambda native, writer: _write(known.get(native.output[0]), native, writer),
        )
        return Changed(model, {"scatters lowered": count}) if count else Unchanged()


def _write(node: Node | None, native: onnx.NodeProto, writer: NodeWriter) -> None:
    """Write the operator's output."""
    given: dict[str, Any] = attributes(native)
    rank = _rank(node)
    if rank is None:
        reason = "the rank of its cache is not known"
        raise UnsupportedError("GP341", f"{native.op_type} {node_name(native)} cannot be lowered: {reason}")
    axis = given.get("axis", -2) % rank
    cache, update = native.input[_CACHE], native.input[_UPDATE]
    length = writer.op("Squeeze", writer.size(update, axis), writer.integers([0]))
    positions = writer.op("Range", writer.integers(0), length, writer.integers(1))
    if start := input_at(native, _START):
        positions = writer.op("Add", writer.op("Unsqueeze", start, writer.integers([1])), positions)
    else:
        positions = writer.op("Unsqueeze", positions, writer.integers([0]))
    if given.get("mode", "linear") == "circular":
        positions = writer.op("Mod", positions, writer.size(cache, axis))
    others = [place for place in range(1, rank) if place != axis]
    positions = writer.op("Unsqueeze", positions, writer.integers(others))
    indices = writer.op("Expand", positions, writer.op("Shape", update))
    writer.op("ScatterElements", cache, indices, update, axis=axis, output=native.output[0])


def _rank(node: Node | None) -> int | None:
    """The rank of the cache, or of what is written into it."""
    ends = [] if node is None else [*node.inputs[: _UPDATE + 1], *node.outputs]
    return next((len(value.shape) for value in ends if value is not None and value.shape is not None), None)
