"""The pass `lower-rotary-embedding`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.rewrite import NodeWriter, attributes, node_name, rewrite_nodes
from graphpass.engine.passes import Changed, Pass, PassResult, Unchanged
from graphpass.errors import UnsupportedError
from graphpass.ir.types import Dialect
from graphpass.passes.lower.onnx_rotary import angles, rotated

if TYPE_CHECKING:
    import onnx

    from graphpass.ir.graph import Node

__all__ = ["LowerRotaryEmbedding"]

_INPUT, _POSITIONS, _COS, _SIN = range(4)


@dataclass(frozen=True)
class LowerRotaryEmbedding(Pass[OnnxModel]):
    """Write com.microsoft RotaryEmbedding in plain operators, as Transformers' exports have it.

    OpenVINO's frontend (2026.4.1) reads the operator, but wrongly where it rotates only a part of each head or gets one
    position to start from, and not at all where ``interleaved`` is left out; ONNX's own RotaryEmbedding it reads right.

    Shapes:
        input ``[batch, length, heads * head_dim]`` or ``[batch, heads, length, head_dim]``, positions ``[batch,
        length]`` or ``[1]``, caches ``[positions, rotary_dim / 2]``.

    Before:
        RotaryEmbedding(input, position_ids, cos_cache, sin_cache)
    After:
        input * cos + Concat(-second half, first half) * sin, with cos and sin gathered by position_ids

    Raises:
        UnsupportedError: GP340 an opset before 13; GP341 packed batches, or sizes that are not known.
    """

    name: ClassVar[str] = "lower-rotary-embedding"
    dialect: ClassVar[Dialect | None] = "onnx"

    def run(self, model: OnnxModel) -> PassResult:
        """See `Pass.run`."""
        known = {node.outputs[0].name: node for node in model.graph.of_op("RotaryEmbedding")}
        count = rewrite_nodes(
            model,
            lambda native: (native.domain, native.op_type) == ("com.microsoft", "RotaryEmbedding"),
            lambda native, writer: _write(known.get(native.output[0]), native, writer),
        )
        return Changed(model, {"embeddings lowered": count}) if count else Unchanged()


def _refusal(native: onnx.NodeProto, reason: str) -> UnsupportedError:
    return UnsupportedError("GP341", f"{native.op_type} {node_name(native)} cannot be lowered: {reason}")


def _write(node: Node | None, native: onnx.NodeProto, writer: NodeWriter) -> None:
    if node is None:
        raise _refusal(native, "it is inside a body or a function")
    given = attributes(native)
    if given.get("is_packed_batching", 0):
        raise _refusal(native, "it has is_packed_batching = 1")
    value, table = node.inputs[_INPUT], node.inputs[_COS]
    half = table.shape[-1] if table is not None and table.shape else None
    last = value.shape[-1] if value is not None and value.shape else None
    if value is None or value.rank not in {3, 4} or not isinstance(last, int) or not isinstance(half, int):
        raise _refusal(native, "the shape of its input or of its cos_cache is not known")
    turning = given.get("rotary_embedding_dim", 0) or 2 * half
    # Without a part to rotate, the caches tell the size of a head; with one, the attribute tells how many there are.
    size = last if value.rank == 4 else last // given["num_heads"] if given.get("num_heads", 0) else turning
    heads = native.input[_INPUT]
    if value.rank == 3:
        split = writer.op("Reshape", heads, writer.integers([0, 0, last // size, size]))
        heads = writer.op("Transpose", split, perm=[0, 2, 1, 3])
    interleaved = bool(given.get("interleaved", 0))
    positions = _positions(node, native, writer, heads)
    tables = [native.input[port] for port in (_COS, _SIN)]
    cos, sin = (angles(writer, name, positions, interleaved=interleaved) for name in tables)
    result = rotated(writer, heads, cos, sin, (size, turning), interleaved=interleaved)
    if value.rank == 3:
        rows = writer.op("Transpose", result, perm=[0, 2, 1, 3])
        writer.op("Reshape", rows, writer.integers([0, 0, last]), output=native.output[0])
    else:
        writer.op("Identity", result, output=native.output[0])


def _positions(node: Node, native: onnx.NodeProto, writer: NodeWriter, heads: str) -> str:
    """Positions ``[batch, length]``; one position is that of the first token."""
    given = node.inputs[_POSITIONS]
    name: str = native.input[_POSITIONS]
    if given is None or given.rank not in {1, 2}:
        raise _refusal(native, "the shape of its position_ids is not known")
    if given.rank == 2:
        return name
    length = writer.op("Squeeze", writer.size(heads, 2), writer.integers([0]))
    steps = writer.op("Range", writer.integers(0), length, writer.integers(1))
    return writer.op("Unsqueeze", writer.op("Add", steps, name), writer.integers([0]))
