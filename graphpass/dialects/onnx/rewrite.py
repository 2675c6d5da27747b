"""Small tools for passes that edit ONNX models: they write nodes, weights stay where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx
from onnx import helper, numpy_helper

from graphpass.dialects.onnx.tensors import graphs
from graphpass.dialects.onnx.walk import opset_of
from graphpass.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy

    from graphpass.dialects.onnx.model import OnnxModel

__all__ = [
    "NodeWriter",
    "attributes",
    "check_opset",
    "drop_unread",
    "input_at",
    "node_name",
    "rewrite_nodes",
]

#: From this version on, axes and lengths are inputs of Squeeze, Unsqueeze and Split, as they are written here.
_FIRST_OPSET = 13

#: What slices are told to stop at when they should not stop.
_END = 2**63 - 1


class NodeWriter:
    """Writes nodes whose names start with the name of the node that they replace.

    Attributes:
        nodes: What was written, in order.
        opset: The version of ONNX's own operators that the model imports.
    """

    def __init__(self, prefix: str, opset: int) -> None:
        """Nothing is written yet."""
        self.nodes: list[onnx.NodeProto] = []
        self.opset = opset
        self._prefix = prefix
        self._used: dict[str, int] = {}
        self._constants: dict[tuple[object, ...], str] = {}

    def op(self, op: str, *inputs: str, label: str = "", output: str = "", **given: Any) -> str:
        """Write an operator with one output.

        Args:
            op: The operator, of ONNX's own domain.
            inputs: What it reads; empty for an input that is left out.
            label: What to call it; the operator's name where not given.
            output: What to call its result, where that name is given: an output of the replaced node.
            given: Its attributes.

        Returns:
            The name of its result.
        """
        name = self._name(label or op)
        result = output or name
        self.nodes.append(helper.make_node(op, inputs, [result], name=name, **given))
        return result

    def split(self, value: str, sizes: list[int], axis: int) -> list[str]:
        """The parts of ``value`` along ``axis``."""
        name = self._name("Split")
        parts = [f"{name}/output_{number}" for number in range(len(sizes))]
        self.nodes.append(helper.make_node("Split", [value, self.integers(sizes)], parts, name=name, axis=axis))
        return parts

    def integers(self, values: int | Iterable[int]) -> str:
        """An i64 constant: a scalar for an int, a vector for several."""
        import numpy

        return self.constant(numpy.array(values if isinstance(values, int) else list(values), dtype=numpy.int64))

    def number(self, value: float, element_type: int) -> str:
        """A scalar constant of ONNX's ``element_type``."""
        import numpy

        array = numpy.array(value, numpy.float32)
        key = ("number", value, element_type)
        if key not in self._constants:
            tensor = helper.make_tensor("", element_type, [], [float(array)])
            self._constants[key] = self.op("Constant", value=tensor)
        return self._constants[key]

    def constant(self, array: numpy.ndarray) -> str:
        """A small constant, each written once."""
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self.op("Constant", value=numpy_helper.from_array(array))
        return self._constants[key]

    def size(self, value: str, axis: int, label: str = "") -> str:
        """One dimension of ``value``, i64 [1]."""
        return self.slice(self.op("Shape", value), axis, axis + 1, 0, label=label or "Size")

    def slice(
        self, value: str, start: int | str, stop: int | None, axis: int, *, label: str = "", output: str = ""
    ) -> str:
        """``value[start:stop]`` along ``axis``.

        Args:
            value: What to cut.
            start: A number, or the name of one, i64 [1].
            stop: Where to stop; ``None`` where to keep all that follows.
            axis: Along which axis.
            label: As in `op`.
            output: As in `op`.
        """
        # OpenVINO's frontend computes steps that are left out, and its fusions want constants.
        first = start if isinstance(start, str) else self.integers([start])
        bounds = (self.integers([number]) for number in (_END if stop is None else stop, axis, 1))
        return self.op("Slice", value, first, *bounds, label=label, output=output)

    def _name(self, label: str) -> str:
        count = self._used[label] = self._used.get(label, -1) + 1
        return f"{self._prefix}/{label}" + (f"_{count}" if count else "")


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """The attributes of ``node``; text as str."""
    found = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in found.items()}


def input_at(node: onnx.NodeProto, port: int) -> str:
    """The name of input ``port``; empty where it is left out."""
    return node.input[port] if port < len(node.input) else ""


def node_name(node: onnx.NodeProto) -> str:
    """How to call ``node`` in messages and in names of nodes that replace it."""
    return node.name or next(name for name in node.output if name)


def check_opset(model: OnnxModel, what: str) -> int:
    """The version of ONNX's own operators that ``model`` imports.

    Args:
        model: The model into which nodes are to be written.
        what: What needs it, for the message.

    Raises:
        UnsupportedError: GP340, it is from before 13.
    """
    opset = opset_of(model.proto)
    if opset < _FIRST_OPSET:
        raise UnsupportedError(
            "GP340",
            f"{what}: the model is of opset {opset}, and what is written needs 13",
            "convert the model with onnx.version_converter first",
        )
    return opset


def rewrite_nodes(
    model: OnnxModel,
    wanted: Callable[[onnx.NodeProto], bool],
    rewrite: Callable[[onnx.NodeProto, NodeWriter], None],
) -> int:
    """Replace nodes of ``model``, in its bodies and functions, too; what nothing reads any more goes with them.

    Args:
        model: What to edit.
        wanted: Which nodes to replace.
        rewrite: Writes what stands for a node: it makes all outputs of the node that have names.

    Returns:
        How many were replaced.

    Raises:
        UnsupportedError: GP340, the model imports a version of ONNX's operators from before 13.
    """
    count = 0
    for graph in graphs(model.proto):
        places = [place for place, node in enumerate(graph.node) if wanted(node)]
        released: list[str] = []
        # From the end, so that places stay what they are; written in the order of the graph, since nodes share parts.
        written: list[NodeWriter] = []
        for place in places:
            node = graph.node[place]
            writer = NodeWriter(node_name(node), check_opset(model, f"{node.op_type} {node_name(node)}"))
            rewrite(node, writer)
            written.append(writer)
            released += node.input
        for place, writer in zip(reversed(places), reversed(written), strict=True):
            del graph.node[place]
            for offset, node in enumerate(writer.nodes):
                graph.node.insert(place + offset, node)
        if isinstance(graph, onnx.GraphProto):
            drop_unread(graph, released)
        count += len(places)
    return count


def drop_unread(graph: onnx.GraphProto, released: list[str]) -> None:
    """Take out nodes and initializers that made ``released`` for nodes which are gone."""
    from graphpass.dialects.onnx.walk import captured

    pending = list(dict.fromkeys(released))
    while pending:
        read = {name for node in graph.node for name in (*node.input, *captured(node))}
        read |= {info.name for info in graph.output}
        unread = {name for name in pending if name and name not in read}
        gone = [node for node in graph.node if any(name in unread for name in node.output)]
        gone = [node for node in gone if all(name not in read for name in node.output)]
        pending = [name for node in gone for name in node.input]
        for node in gone:
            graph.node.remove(node)
        unread -= {info.name for info in graph.input}
        for tensor in [tensor for tensor in graph.initializer if tensor.name in unread]:
            graph.initializer.remove(tensor)
