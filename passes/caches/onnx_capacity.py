"""What all parts of the pass `static-cache` share: names, lengths, and what is written and taken out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx

from graphpass.dialects.onnx.rewrite import NodeWriter, drop_dead
from graphpass.dialects.onnx.walk import captured, in_order, opset_of
from graphpass.errors import UnsupportedError

if TYPE_CHECKING:
    from graphpass.dialects.onnx.model import OnnxModel
    from graphpass.ir.cache import Cache

__all__ = ["CapacityRewrite", "Names", "refusal"]

#: Inputs whose second axis is that of the new tokens.
_TOKENS = ("input_ids", "decoder_input_ids", "inputs_embeds")


class Names:
    """Who makes and who reads each value of a graph.

    Attributes:
        makers: The node that makes a value, by the value's name.
        readers: The nodes that read it, and at which of their inputs.
        captured: What the bodies of loops and branches read from outside.
    """

    def __init__(self, model: OnnxModel) -> None:
        """Of the model's main graph."""
        graph = model.proto.graph
        self.makers: dict[str, onnx.NodeProto] = {}
        self.readers: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
        self.captured: set[str] = set()
        for node in graph.node:
            self.makers.update(dict.fromkeys(node.output, node))
            self.captured.update(captured(node))
            for port, name in enumerate(node.input):
                self.readers.setdefault(name, []).append((node, port))

    def is_inside(self, cache: Cache, operator: str) -> bool:
        """Whether such an operator keeps ``cache``. GroupQueryAttention writes in place if past and present are one."""
        maker = self.makers.get(str(cache.write))
        return maker is not None and maker.op_type == operator and cache.read in maker.input

    def append(self, cache: Cache) -> onnx.NodeProto:
        """The Concat that appends to ``cache``, behind whatever converts its result for the output.

        Raises:
            UnsupportedError: GP391, nothing of that form writes the cache.
        """
        node = self.makers.get(str(cache.write))
        while node is not None and node.op_type in {"Cast", "Identity"}:
            node = self.makers.get(node.input[0])
        if node is None or node.op_type != "Concat" or list(node.input[:1]) != [cache.read] or len(node.input) != 2:
            raise refusal(cache, "is not appended to by a Concat of the past and the new positions")
        return node


def refusal(cache: Cache, reason: str) -> UnsupportedError:
    """The error GP391 of ``cache``, for this reason."""
    return UnsupportedError(
        "GP391",
        f"cache {cache.name} cannot get a fixed capacity: it {reason}",
        "graphpass inspect shows how it is updated and read",
    )


class CapacityRewrite:
    """A graph whose caches get a fixed capacity, until `finish` puts it together.

    Attributes:
        model: The model.
        names: Its values as they were, and as `redirect` changed them.
        writer: Writes new nodes.
        past: How many positions there are before the step, i64 [1]; known after `tell_lengths`.
        total: How many there are behind it.
        gone: Nodes that `finish` takes out.
    """

    def __init__(self, model: OnnxModel, names: Names, capacity: int) -> None:
        """Nothing is written yet.

        Args:
            model: What to edit.
            names: Its values.
            capacity: How many positions fit.
        """
        self.model, self.names = model, names
        opset = opset_of(model.proto)
        self.writer = NodeWriter("static_cache", opset)
        self.past = self.total = ""
        self.gone: list[onnx.NodeProto] = []
        self._capacity = self.writer.integers([capacity])
        self._rows: dict[str, str] = {}
        self._paddings: dict[str, str] = {}

    def tell_lengths(self) -> None:
        """Find out, or ask by an input, how many positions there are before the step and behind it.

        Raises:
            UnsupportedError: GP391, no input tells how many tokens are new.
        """
        writer, ports = self.writer, {port.name: port for port in self.model.inputs}
        tokens = next((name for name in _TOKENS if name in ports), None)
        if tokens is None:
            raise UnsupportedError("GP391", f"no input tells how many tokens are new: none is {' or '.join(_TOKENS)}")
        length = writer.size(tokens, 1, label="new_length")
        mask = ports.get("attention_mask")
        if mask is not None and len(mask.shape or ()) == 2:
            self.total = writer.size(mask.name, 1, label="total_length")
            self.past = writer.op("Sub", self.total, length, label="past_length")
            return
        self.model.proto.graph.input.append(onnx.helper.make_tensor_value_info("past_len", onnx.TensorProto.INT64, [1]))
        self.past = "past_len"
        self.total = writer.op("Add", self.past, length, label="total_length")

    def for_each_row(self, number: str, new: str) -> str:
        """``number``, i64 [1], once for each row of the batch."""
        if number not in self._rows:
            self._rows[number] = self.writer.op("Expand", number, self.writer.size(new, 0), label="for_each_row")
        return self._rows[number]

    def padded(self, name: str) -> str:
        """``name`` with zeros behind the positions that there are, along its last axis.

        Raises:
            UnsupportedError: GP391, its rank is not known.
        """
        writer = self.writer
        if name not in self._paddings:
            value = next(value for node in self.model.graph.nodes for value in node.outputs if value.name == name)
            if value.rank is None:
                raise UnsupportedError("GP391", f"the rank of {name} is not known, so it cannot be padded")
            free = writer.op("Sub", self._capacity, self.total, label="free")
            zeros = writer.integers([0] * (2 * value.rank - 1))
            self._paddings[name] = writer.op("Pad", name, writer.op("Concat", zeros, free, axis=0), label="padded")
        return self._paddings[name]

    def readers(self, name: str) -> list[tuple[onnx.NodeProto, int]]:
        """Who reads ``name`` and stays."""
        gone = {id(node) for node in self.gone}
        return [(node, port) for node, port in self.names.readers.get(name, ()) if id(node) not in gone]

    def redirect(self, old: str, new: str) -> None:
        """Let all who read ``old`` read ``new``."""
        for node, port in self.names.readers.get(old, ()):
            node.input[port] = new
            self.names.readers.setdefault(new, []).append((node, port))

    def finish(self) -> None:
        """Take out what is gone, and put what was written where it belongs."""
        graph = self.model.proto.graph
        for node in self.gone:
            graph.node.remove(node)
        nodes = in_order([*graph.node, *self.writer.nodes], set())
        del graph.node[:]
        graph.node.extend(nodes)
        drop_dead(graph)
