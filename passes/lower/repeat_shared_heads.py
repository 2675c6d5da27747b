"""The pass `repeat-shared-heads`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.rewrite import NodeWriter, attributes, input_at, rewrite_nodes
from graphpass.dialects.onnx.tensors import graphs
from graphpass.dialects.onnx.walk import ONNX_DOMAINS
from graphpass.engine.passes import Changed, Pass, PassResult, Unchanged
from graphpass.ir.types import Dialect

if TYPE_CHECKING:
    import onnx

    from graphpass.ir.graph import Value

__all__ = ["RepeatSharedHeads"]

_QUERY, _KEY, _VALUE, _PAST_KEY = 0, 1, 2, 4


@dataclass(frozen=True)
class RepeatSharedHeads(Pass[OnnxModel]):
    """Give ONNX's Attention a key and a value for each head of the query.

    OpenVINO's frontend (2026.4.1) repeats heads that several of the query share only where it knows both numbers of
    heads when it reads the operator; else the model does not compile. Here the numbers are taken from shapes, which
    OpenVINO knows later. Attention whose numbers are known, that holds its caches itself, or has its heads in the last
    axis, is left as it is.

    Shapes:
        query ``[batch, heads, length, head_dim]``, key and value ``[batch, kv_heads, sequence, head_dim]``.

    Before:
        Attention(query, key, value, ..)
    After:
        Attention(query, Reshape(Expand(Unsqueeze(key))), Reshape(Expand(Unsqueeze(value))), ..)

    Raises:
        UnsupportedError: GP340, an opset before 13.
    """

    name: ClassVar[str] = "repeat-shared-heads"
    dialect: ClassVar[Dialect | None] = "onnx"

    def run(self, model: OnnxModel) -> PassResult:
        """See `Pass.run`."""
        values = {value.name: value for node in model.graph.nodes for value in node.outputs}
        makers = {name: node for graph in graphs(model.proto) for node in graph.node for name in node.output}
        count = rewrite_nodes(
            model, lambda node: _is_unknown(node, values) and not _is_repeated(node.input[_KEY], makers), _write
        )
        return Changed(model, {"attention with heads repeated": count}) if count else Unchanged()


def _is_unknown(node: onnx.NodeProto, values: dict[str, Value]) -> bool:
    """Whether ``node`` is Attention of unknown numbers of heads, with caches that it does not hold itself."""
    if node.op_type != "Attention" or node.domain not in ONNX_DOMAINS or len(node.output) != 1:
        return False
    if input_at(node, _PAST_KEY) or "q_num_heads" in attributes(node):
        return False
    return not all(isinstance(_heads(values.get(node.input[port])), int) for port in (_QUERY, _KEY))


def _is_repeated(name: str, makers: dict[str, onnx.NodeProto]) -> bool:
    """Whether heads were repeated already, as `_write` does it, and exporters, too."""
    for operator in ("Reshape", "Expand", "Unsqueeze"):
        node = makers.get(name)
        if node is None or node.op_type != operator:
            return False
        name = node.input[0]
    return True


def _heads(value: Value | None) -> int | str | None:
    return value.shape[1] if value is not None and value.shape is not None else None


def _write(node: onnx.NodeProto, writer: NodeWriter) -> None:
    """Write the operator again, behind keys and values of as many heads as the query has."""
    inputs = list(node.input)
    heads = writer.size(inputs[_QUERY], 1)
    one = writer.integers([1])
    for port in (_KEY, _VALUE):
        value = inputs[port]
        each = writer.op("Div", heads, writer.size(value, 1))
        times = writer.op("Concat", one, one, each, one, one, axis=0)
        wide = writer.op("Expand", writer.op("Unsqueeze", value, writer.integers([2])), times)
        sizes = writer.op("Concat", writer.integers([0]), heads, writer.integers([-1]), writer.size(value, 3), axis=0)
        inputs[port] = writer.op("Reshape", wide, sizes, label="repeated")
    writer.op("Attention", *inputs, output=node.output[0], **attributes(node))
