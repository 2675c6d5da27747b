"""The pass `reshape-weights`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.rewrite import drop_unread
from graphpass.engine.passes import Changed, Pass, PassResult, Unchanged
from graphpass.ir.types import Dialect

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx

__all__ = ["ReshapeWeights"]

#: Operators whose weights OpenVINO's frontend takes as constants alone.
_WANT_CONSTANTS = frozenset({"GatherBlockQuantized"})


@dataclass(frozen=True)
class ReshapeWeights(Pass[OnnxModel]):
    """Declare weights in the shape in which they are read, instead of reshaping them.

    The builder of onnxruntime-genai ties quantized embeddings to the head by a Reshape of its weights, and OpenVINO's
    frontend refuses a GatherBlockQuantized whose data is computed (2026.4.1). The same bytes get a second declaration;
    where they lie in a file of external data, both refer to them there.

    Shapes:
        weights u8 ``[vocabulary, blocks, bytes]`` as ``[vocabulary, blocks * bytes]``

    Before:
        weights -> Reshape -> GatherBlockQuantized
    After:
        weights of the new shape -> GatherBlockQuantized
    """

    name: ClassVar[str] = "reshape-weights"
    dialect: ClassVar[Dialect | None] = "onnx"

    def run(self, model: OnnxModel) -> PassResult:
        """See `Pass.run`."""
        graph = model.proto.graph
        weights = {tensor.name: tensor for tensor in graph.initializer}
        wanted = {node.input[0] for node in graph.node if node.op_type in _WANT_CONSTANTS}
        found = [
            node
            for node in graph.node
            if node.op_type == "Reshape" and node.output[0] in wanted and node.input[0] in weights
        ]
        shapes = {value.name: value.shape for node in model.graph.of_op("Reshape") for value in node.outputs}
        released: list[str] = []
        for node in found:
            tensor = _declared(weights[node.input[0]], node.output[0], shapes.get(node.output[0]))
            if tensor is not None:
                released += node.input
                graph.node.remove(node)
                graph.initializer.append(tensor)
        if not released:
            return Unchanged()
        drop_unread(graph, released)
        return Changed(model, {"weights declared anew": len(released) // 2})


def _declared(tensor: onnx.TensorProto, name: str, shape: Sequence[int | str | None] | None) -> onnx.TensorProto | None:
    """The bytes of ``tensor`` under another name and shape; ``None`` where that is not known, or of another size."""
    sizes = [size for size in shape or () if isinstance(size, int)]
    if shape is None or len(sizes) != len(shape) or math.prod(sizes) != math.prod(tensor.dims):
        return None
    declared = type(tensor)()
    declared.CopyFrom(tensor)
    declared.name = name
    declared.dims[:] = sizes
    return declared
