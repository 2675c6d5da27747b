"""Edits of an ONNX model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy
import onnx
from onnx import helper, numpy_helper

from graphpass.dialects.onnx.rewrite import attributes, check_opset, drop_unread
from graphpass.dialects.onnx.walk import bodies, in_order
from graphpass.ir.editor import Editor, Handle

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from graphpass.dialects.onnx.model import OnnxModel
    from graphpass.ir.graph import Node, Value

__all__ = ["OnnxEditor"]

#: Operators that read their axes from this input; in early opsets, and all others always, they are an attribute.
_AXES_INPUTS = {"Slice": 3, "Unsqueeze": 1}


class OnnxEditor(Editor):
    """Edits nodes in place; tensors that an edit does not make keep their names."""

    def __init__(self, model: OnnxModel) -> None:
        """Start with ``model``."""
        self._model = model
        self._graph = model.proto.graph
        self._released: list[str] = []
        self._new: list[onnx.NodeProto] = []
        self._outputs: dict[str, str] = {}
        self._bypassed: dict[str, str] = {}
        self._infos = {info.name: info for info in self._graph.value_info}
        self._names = {name for node in self._graph.node for name in (node.name, *node.output)}
        self._names |= {tensor.name for tensor in self._graph.initializer} | {info.name for info in self._graph.input}

    def handle(self, value: Value) -> Handle:
        """See `Editor`."""
        return value.name

    def transpose(self, source: Handle, order: Sequence[int], name: str) -> Handle:
        """See `Editor`."""
        return self._add("Transpose", [source], name, perm=list(order))

    def integers(self, values: int | Sequence[int], name: str) -> Handle:
        """See `Editor`."""
        return self._add("Constant", [], name, value=numpy_helper.from_array(numpy.array(values, numpy.int64)))

    def pick(self, vector: Handle, places: Sequence[int], name: str) -> Handle:
        """See `Editor`."""
        return self._add("Gather", [vector, self.integers(places, f"{name}/places")], name, axis=0)

    def join(self, parts: Sequence[Handle], axis: int, name: str) -> Handle:
        """See `Editor`."""
        return self._add("Concat", list(parts), name, axis=axis)

    def split(self, source: Handle, axis: int, sizes: Sequence[int], name: str) -> list[Handle]:
        """See `Editor`."""
        check_opset(self._model, "Split")
        outputs = [self._unused(f"{name}/part_{place}") for place in range(len(sizes))]
        lengths = self.integers(sizes, f"{name}/sizes")
        self._new.append(helper.make_node("Split", [source, lengths], outputs, self._unused(name), axis=axis))
        return outputs

    def reshape(self, source: Handle, shape: Sequence[int], name: str) -> Handle:
        """See `Editor`."""
        check_opset(self._model, "Reshape")
        return self._add("Reshape", [source, self.integers(shape, f"{name}/shape")], name)

    def insert_axis(self, source: Handle, axis: int, name: str) -> Handle:
        """See `Editor`."""
        check_opset(self._model, "Unsqueeze")
        return self._add("Unsqueeze", [source, self.integers([axis], f"{name}/axis")], name)

    def remove_axis(self, source: Handle, axis: int, name: str) -> Handle:
        """See `Editor`."""
        check_opset(self._model, "Squeeze")
        return self._add("Squeeze", [source, self.integers([axis], f"{name}/axis")], name)

    def again(self, node: Node, inputs: Mapping[int, Handle], name: str, axes: Sequence[int] | None = None) -> Handle:
        """See `Editor`."""
        copy = onnx.NodeProto()
        copy.CopyFrom(node.native)
        copy.name = self._unused(name)
        copy.input[:] = [inputs.get(port, source) for port, source in enumerate(node.native.input)]
        copy.output[:] = [copy.name]
        self._new.append(copy)
        if axes is not None:
            self.set_axes(replace(node, name=copy.name, native=copy), axes)
        return copy.name

    def add_past(self, like: Node, name: str, sizes: Sequence[int | None], initial: Handle | None) -> Handle:  # noqa: ARG002
        """See `Editor`; there are no variables."""
        self._graph.input.insert(_place(self._graph.input, like.name), _resized(like.native, name, sizes))
        self._names.add(name)
        return name

    def add_present(self, like: Node, name: str, sizes: Sequence[int | None], source: Handle) -> None:
        """See `Editor`."""
        self._graph.output.insert(_place(self._graph.output, like.name), _resized(like.native, name, sizes))
        self._names.add(name)
        self._outputs[name] = source

    def drop(self, nodes: Iterable[Node]) -> None:
        """See `Editor`."""
        for node in nodes:
            for infos in (self._graph.input, self._graph.output):
                for info in [info for info in infos if info.name == node.name]:
                    infos.remove(info)
            self._released.append(node.name)

    def whole_shape(self, node: Node) -> tuple[int, ...]:
        """See `Editor`."""
        assert node.inputs[0] is not None
        given = attributes(node.native)
        places = range(node.inputs[0].rank or 0)[given.get("start", 0) : given.get("end")]
        del node.native.attribute[:]
        return tuple(places)

    def set_axes(self, node: Node, axes: Sequence[int]) -> None:
        """See `Editor`."""
        port = _AXES_INPUTS.get(node.op)
        if port is not None and port < len(node.native.input):
            self.redirect(node, port, self.integers(axes, f"{node.name}/axes"))
            return
        name = {"Transpose": "perm", "Slice": "axes", "Unsqueeze": "axes"}.get(node.op, "axis")
        _set_attribute(node.native, name, axes[0] if name == "axis" else list(axes))

    def set_shape(self, reshape: Node, shape: Sequence[int]) -> None:
        """See `Editor`."""
        _set_attribute(reshape.native, "allowzero", None)
        self.redirect(reshape, 1, self.integers(shape, f"{reshape.name}/shape"))

    def redirect(self, node: Node, port: int, source: Handle) -> None:
        """See `Editor`."""
        if node.op == "Result":
            self._outputs[node.name] = source
            return
        native = node.native
        if port < len(native.input):
            self._released.append(native.input[port])
            native.input[port] = source
            return
        # What bodies capture has no port of its own.
        value = node.inputs[port]
        assert value is not None
        inside = [inner for body in bodies(native).values() for inner in body.node]
        _rename(inside, {value.name: source})

    def bypass(self, node: Node, source: Handle) -> None:
        """See `Editor`."""
        (old,) = node.native.output
        self._released.append(old)
        self._bypassed[old] = source

    def transpose_port(self, node: Node, order: Sequence[int]) -> None:
        """See `Editor`."""
        _transpose_type(node.native, order)

    def moved(self, value: Value, order: Sequence[int]) -> None:
        """See `Editor`."""
        if value.name in self._infos:
            _transpose_type(self._infos[value.name], order)

    def finish(self) -> None:
        """See `Editor`."""
        nodes = [*self._graph.node, *self._new]
        _rename(nodes, self._bypassed)
        for output in list(self._outputs):
            self._name_output(nodes, output)
        kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in in_order(nodes, set())]
        del self._graph.node[:]
        self._graph.node.extend(kept)
        drop_unread(self._graph, self._released)

    def count(self, op: str) -> int:
        """See `Editor`."""
        return sum(node.op_type == op for node in self._graph.node)

    def _name_output(self, nodes: list[onnx.NodeProto], output: str) -> None:
        """Let what an output shall read be called as the output is; what was called so gets another name."""
        source = self._outputs.pop(output)
        if source == output:
            return
        before = self._unused(f"{output}/before")
        names = {output: before}
        is_port = source in {info.name for info in (*self._graph.input, *self._graph.output)}
        if not is_port:
            names[source] = output
        for node in nodes:
            node.output[:] = [names.get(name, name) for name in node.output]
        _rename(nodes, names)
        if is_port:
            nodes.append(helper.make_node("Identity", [source], [output], self._unused(f"{output}/output")))
        self._outputs = {name: names.get(read, read) for name, read in self._outputs.items()}
        self._released = [*(names.get(name, name) for name in self._released), before]

    def _add(self, op: str, inputs: list[str], name: str, **given: Any) -> str:
        name = self._unused(name)
        self._new.append(helper.make_node(op, inputs, [name], name, **given))
        return name

    def _unused(self, name: str) -> str:
        number, unused = 1, name
        while unused in self._names:
            number += 1
            unused = f"{name}_{number}"
        self._names.add(unused)
        return unused


def _set_attribute(node: onnx.NodeProto, name: str, value: Any) -> None:
    for attribute in [attribute for attribute in node.attribute if attribute.name == name]:
        node.attribute.remove(attribute)
    if value is not None:
        node.attribute.append(helper.make_attribute(name, value))


def _rename(nodes: list[onnx.NodeProto], names: Mapping[str, str]) -> None:
    """Let ``nodes`` and those in their bodies read other tensors; what a body calls so itself is meant there."""
    pending = [(nodes, names)]
    while pending:
        nodes, names = pending.pop()
        for node in nodes if names else ():
            node.input[:] = [names.get(name, name) for name in node.input]
            for body in bodies(node).values():
                own = {name for inner in body.node for name in inner.output}
                own |= {info.name for info in (*body.input, *body.initializer)}
                pending.append((list(body.node), {old: new for old, new in names.items() if old not in own}))


def _place(infos: Sequence[onnx.ValueInfoProto], name: str) -> int:
    return next(place for place, info in enumerate(infos) if info.name == name)


def _resized(info: onnx.ValueInfoProto, name: str, sizes: Sequence[int | None]) -> onnx.ValueInfoProto:
    made = onnx.ValueInfoProto()
    made.CopyFrom(info)
    made.name = name
    shape = made.type.tensor_type.shape
    del shape.dim[:]
    for place, size in enumerate(sizes):
        if size is None:
            shape.dim.append(info.type.tensor_type.shape.dim[place])
        elif size != -1:
            shape.dim.append(onnx.TensorShapeProto.Dimension(dim_value=size))
    return made


def _transpose_type(info: onnx.ValueInfoProto, order: Sequence[int]) -> None:
    dimensions = list(info.type.tensor_type.shape.dim)
    if len(dimensions) == len(order):
        kept = [dimensions[axis].SerializeToString() for axis in order]
        for dimension, content in zip(dimensions, kept, strict=True):
            dimension.ParseFromString(content)
