"""`OnnxRewriter`: edits an ONNX model through onnx-graphsurgeon."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
import onnx
import onnx_graphsurgeon as gs
from onnx import numpy_helper

from graphpass.dialects.onnx.dead_nodes import drop_dead, inner_nodes
from graphpass.dialects.onnx.graphsurgeon import LazyWeights, Surgery, TensorOrigin
from graphpass.dialects.onnx.operators import AXES_PORTS, LEFT_OUT, check_opset, translated
from graphpass.dialects.onnx.tensors import element_code, element_type
from graphpass.dialects.onnx.write_back import WriteBack
from graphpass.dialects.rounding import rounded_bytes
from graphpass.ir.graph import Graph, Node, Use, Value
from graphpass.ir.rewriter import Rewriter, claim_name
from graphpass.ir.types import Dimension
from graphpass.ir.writer import Handle, Operand


class OnnxRewriter(Rewriter):
    """Edits a graphsurgeon graph; existing tensors keep their names.

    Attributes:
        surgery: The graphsurgeon graph with the origins of its objects.
        opset: Version of the default ONNX operator set that the model imports.
    """

    def __init__(self, proto: onnx.ModelProto, path: Path | None, graph: Graph, edited: Callable[[], None]) -> None:
        self.graph = graph
        self.surgery = Surgery(proto, path)
        self.opset: int = self.surgery.graph.opset or 0
        self._edited = edited
        self._path = path
        self._nodes = {id(origin.proto): origin.node for origin in self.surgery.nodes.values()}
        self._names = {tensor.name for tensor in (origin.tensor for origin in self.surgery.tensors.values())}
        self._names |= {origin.node.name for origin in self.surgery.nodes.values()}
        self._home: gs.Graph = self.surgery.graph
        self._made: dict[int, gs.Node] = {}
        self._released: list[gs.Tensor] = []
        self._replaced: dict[Value, gs.Tensor] = {}
        self._constants: dict[tuple[int, bytes], gs.Tensor] = {}
        self._bodies: list[gs.Graph] = []

    def node(self, node: Node) -> gs.Node:
        """Return the graphsurgeon node for a node of the view."""
        return self._nodes[id(node.native)]

    def native(self, value: Value) -> Handle:
        if value in self._replaced:
            return self._replaced[value]
        producer = self._nodes.get(id(self.graph.producer(value).native))
        return producer.outputs[value.port] if producer is not None else self.surgery.main[value.name]

    def type_of(self, handle: Handle) -> str:
        code = handle.dtype if isinstance(handle.dtype, int | None) else _code(handle.dtype)
        return "dynamic" if code is None else element_type(code)

    def make(
        self, kind: str, inputs: Sequence[Operand], name: str, count: int, neutral: Mapping[str, Any]
    ) -> list[Handle]:
        """See `NodeMaker.make`; the attribute ``domain`` selects native operators and attributes.

        The domain of ONNX operators is ``""``.

        Returns:
            The outputs, as `NodeMaker.make`.

        Raises:
            UnsupportedError: GP340, the model imports an opset before 13.
        """
        check_opset(self.opset, name)
        handles = [self.handle(operand, f"{name}/input_{port}") for port, operand in enumerate(inputs)]
        op, domain, sources, attributes = translated(self, self.opset, kind, handles, name, dict(neutral))
        for key, value in attributes.items():
            if isinstance(value, numpy.ndarray):
                attributes[key] = gs.Constant("", LazyWeights(numpy_helper.from_array(value), None))
        return self.add_native(
            op,
            [gs.Variable.empty() if source is None else source for source in sources],
            name,
            count,
            attributes,
            domain,
        )

    def constant(self, values: Any, element_type: str, name: str) -> Handle:
        """See `NodeMaker.constant`; equal constants are created once.

        Returns:
            The constant; the one created before if it is equal.
        """
        tensor = _constant_tensor(values, element_type)
        key = (id(self._home), tensor.SerializeToString(deterministic=True))
        if key not in self._constants:
            constant = gs.Constant("", LazyWeights(tensor, None))
            (self._constants[key],) = self.add_native("Constant", [], name, 1, {"value": constant}, None)
        return self._constants[key]

    def weights(self, handle: Handle) -> LazyWeights | None:
        """Return the stored elements of an initializer; ``None`` for other tensors."""
        values = getattr(handle, "_values", None)
        return values if isinstance(values, LazyWeights) else None

    def declared(
        self, content: LazyWeights | numpy.ndarray, shape: Sequence[int], name: str, element_type: str = ""
    ) -> Handle:
        """Create an initializer with the same bytes and another shape or type, without reading them.

        Args:
            content: The data.
            shape: Shape of the initializer.
            name: Its name, with a number if it is taken.
            element_type: OpenVINO's short name, ``u8``; empty for the type of ``content``.

        Returns:
            The initializer.
        """
        tensor = onnx.TensorProto()
        tensor.CopyFrom(content.tensor if isinstance(content, LazyWeights) else numpy_helper.from_array(content))
        tensor.dims[:] = shape
        if element_type:
            tensor.data_type = element_code(element_type)
        return gs.Constant(claim_name(self._names, name), LazyWeights(tensor, self._path))

    def declare_type(self, target: Value | Node, element_type: str) -> None:
        tensor = self.native(target) if isinstance(target, Value) else self._port(target)
        tensor.dtype = element_code(element_type)

    @contextlib.contextmanager
    def body(self, name: str, inputs: Iterable[str], element_type: str) -> Iterator[gs.Graph]:
        """Create the body of a loop from the nodes created in the ``with`` block.

        Args:
            name: Name of the graph.
            inputs: Labels of the inputs.
            element_type: Element type of the inputs and outputs.

        Yields:
            The body, whose outputs are set in the ``with`` block.
        """
        code, outer = element_code(element_type), self._home
        self._home = made = gs.Graph(name=name, opset=self.opset)
        made.inputs = [gs.Variable(claim_name(self._names, f"{name}/{label}"), code) for label in inputs]
        yield made
        for output in made.outputs:
            output.dtype = code
        self._bodies.append(made)
        self._home = outer

    def input(self, name: str, element_type: str, shape: Sequence[Dimension] | None) -> Handle:
        self._release_name(name)
        made = gs.Variable(name, element_code(element_type), None if shape is None else list(shape))
        self.surgery.graph.inputs.append(made)
        return made

    def output(self, name: str, source: Handle, element_type: str, shape: Sequence[Dimension]) -> None:
        self._release_name(name)
        outputs = self.surgery.graph.outputs
        made = gs.Variable(name, element_code(element_type), list(shape))
        outputs.append(made)
        self._rename(made, source, [len(outputs) - 1])

    def _release_name(self, name: str) -> None:
        """Rename an inner tensor that has the name of a new input or output."""
        inner = self.surgery.main.get(name)
        self._names.add(name)
        if inner is not None and inner.name == name:
            inner.name = claim_name(self._names, f"{name}/inner")

    def size(self, operand: Operand, axis: int, name: str, shape: Handle | None = None) -> Handle:
        whole = self.op("ShapeOf", operand, name=f"{name}/shape") if shape is None else shape
        return self.op("Slice", whole, [axis], [axis + 1], name=name, axes=[0])

    def clone(self, node: Node, inputs: Mapping[int, Operand], name: str, axes: Sequence[int] | None = None) -> Handle:
        old = self.node(node)
        sources = [
            self.handle(inputs[port], f"{name}/input_{port}") if port in inputs else source
            for port, source in enumerate(old.inputs)
        ]
        (made,) = self.add_native(old.op, sources, name, 1, dict(old.attrs), old.domain)
        if axes is not None:
            self._set_axes(made.inputs[0], node.op, axes)
        return made

    def adopt(self, donor: OnnxRewriter, node: Node, name: str) -> None:
        """Move a node from another model in the same folder; weights stay in their files.

        Args:
            donor: Rewriter of the other model, which cannot be used afterwards.
            node: A weight of the other model, or a node that reads only moved nodes and redirected values.
            name: Prefix for the names of the node and its tensors.
        """
        tensors = [donor.native(output) for output in node.outputs]
        producers = {id(producer): producer for tensor in tensors for producer in tensor.inputs}.values()
        for holder in (*(tensor for tensor in tensors if not tensor.inputs), *producers):
            holder.name = claim_name(self._names, f"{name}/{holder.name.lstrip('/')}")
        for producer in producers:
            for output in producer.outputs:
                output.name = claim_name(self._names, f"{name}/{output.name.lstrip('/')}") if output.name else ""
            self._home.nodes.append(producer)
            self._made |= {id(output): producer for output in producer.outputs}

    def replace(self, old: Value, new: Handle) -> None:
        tensor = self.native(old)
        ports = [index for index, output in enumerate(self.surgery.graph.outputs) if output is tensor]
        self._move_uses(tensor, new)
        is_new = id(new) in self._made or (isinstance(new, gs.Constant) and id(new) not in self.surgery.tensors)
        if is_new or ports:
            self._rename(tensor, new, ports)
        self._released.append(tensor)
        self._replaced[old] = new

    def _rename(self, old: gs.Tensor, new: gs.Tensor, ports: list[int]) -> None:
        """Transfer the name and the model outputs of ``old`` to ``new``."""
        outputs = self.surgery.graph.outputs
        if (ports and not new.inputs) or any(output is new for output in outputs):
            (new,) = self.add_native("Identity", [new], claim_name(self._names, f"{old.name}/output"), 1, {}, None)
        name = old.name
        old.name = claim_name(self._names, f"{name}/before")
        new.name = name
        if ports:
            new.dtype, new.shape, new.type = old.dtype, old.shape, old.type
            if (origin := self.surgery.tensors.get(id(old))) is not None:
                self.surgery.tensors[id(new)] = TensorOrigin(new, name, origin.typed)
        for index in ports:
            outputs[index] = new

    def redirect_uses(self, old: Operand, new: Handle, only: Callable[[Use], bool] | None = None) -> int:
        if not isinstance(old, Value):
            return self._move_uses(old, new)
        if only is None:
            return self._move_uses(self.native(old), new)
        uses = [use for use in self.graph.uses(old) if use.node.op != "Result" and only(use)]
        for use in uses:
            self.redirect(use.node, use.port, new)
        return len(uses)

    def _move_uses(self, old: gs.Tensor, new: gs.Tensor) -> int:
        count = 0
        for user in list(old.outputs):
            for port, source in enumerate(user.inputs):
                if source is old and not any(output is new for output in user.outputs):
                    user.inputs[port] = new
                    count += 1
        self._released.append(old)
        return count

    def redirect(self, node: Node, port: int, source: Operand) -> None:
        handle = self.handle(source, f"{node.name}/input_{port}")
        if node.op == "Result":
            outputs = self.surgery.graph.outputs
            index = next(index for index, output in enumerate(outputs) if output.name == node.name)
            if outputs[index] is not handle:
                old = outputs[index]
                self._rename(old, handle, [index])
                self._released.append(old)
            return
        native = self.node(node)
        if port < len(native.inputs):
            self._released.append(native.inputs[port])
            native.inputs[port] = handle
            return
        # Captured values of bodies have no native port.
        captured = self.native(node.source(port))
        for inner in inner_nodes(native):
            for index, read in enumerate(inner.inputs):
                if read is captured:
                    inner.inputs[index] = handle
        self._released.append(captured)

    def set_input(self, node: Node, port: int, source: Operand) -> None:
        """See `Rewriter.set_input`; ``None`` as source omits the input."""
        native = self.node(node)
        while len(native.inputs) <= port:
            native.inputs.append(gs.Variable.empty())
        self._released.append(native.inputs[port])
        handle = self.handle(source, f"{node.name}/input_{port}")
        native.inputs[port] = gs.Variable.empty() if handle is None else handle

    def add_past(self, like: Node, name: str, sizes: Sequence[int | None], initial: Handle | None) -> Handle:  # noqa: ARG002
        """See `Rewriter.add_past`; ONNX has no variables.

        Returns:
            The new input.
        """
        inputs = self.surgery.graph.inputs
        index = next(index for index, tensor in enumerate(inputs) if tensor.name == like.name)
        self._release_name(name)
        made = gs.Variable(name, inputs[index].dtype, _resized(inputs[index].shape, sizes))
        inputs.insert(index, made)
        return made

    def add_present(self, like: Node, name: str, sizes: Sequence[int | None], source: Handle) -> None:
        outputs = self.surgery.graph.outputs
        index = next(index for index, tensor in enumerate(outputs) if tensor.name == like.name)
        self._release_name(name)
        made = gs.Variable(name, outputs[index].dtype, _resized(outputs[index].shape, sizes))
        outputs.insert(index, made)
        self._rename(made, source, [index])

    def drop(self, nodes: Iterable[Node]) -> None:
        names = {node.name for node in nodes}
        graph = self.surgery.graph
        self._released += [tensor for tensor in graph.outputs if tensor.name in names]
        graph.inputs = [tensor for tensor in graph.inputs if tensor.name not in names]
        graph.outputs = [tensor for tensor in graph.outputs if tensor.name not in names]

    def drop_input(self, name: str) -> bool:
        inputs = self.surgery.graph.inputs
        index = next((index for index, tensor in enumerate(inputs) if tensor.name == name), None)
        if index is None or inputs[index].outputs:
            return False
        del inputs[index]
        return True

    def whole_shape(self, node: Node) -> tuple[int, ...]:
        native = self.node(node)
        axes = range(node.source().rank or 0)[native.attrs.get("start", 0) : native.attrs.get("end")]
        native.attrs.clear()
        return tuple(axes)

    def set_axes(self, node: Node, axes: Sequence[int]) -> None:
        self._set_axes(self.node(node), node.op, axes)

    def _set_axes(self, native: gs.Node, op: str, axes: Sequence[int]) -> None:
        port = AXES_PORTS.get(op)
        if port is not None and port < len(native.inputs):
            self._released.append(native.inputs[port])
            native.inputs[port] = self.constant(list(axes), "i64", f"{native.name}/axes")
            return
        name = {"Transpose": "perm", "Slice": "axes", "Unsqueeze": "axes"}.get(op, "axis")
        native.attrs[name] = axes[0] if name == "axis" else list(axes)

    def set_shape(self, reshape: Node, shape: Sequence[int]) -> None:
        native = self.node(reshape)
        native.attrs.pop("allowzero", None)
        self.redirect(reshape, 1, self.constant(list(shape), "i64", f"{reshape.name}/shape"))

    def transpose_port(self, node: Node, order: Sequence[int]) -> None:
        _permute(self._port(node), order)

    def resize_port(self, node: Node, sizes: Sequence[int | None]) -> None:
        tensor = self._port(node)
        tensor.shape = _resized(tensor.shape if tensor.shape is not None else [None] * len(sizes), sizes)

    def rename_ports(self, names: Mapping[Node, str]) -> None:
        ports = {node: self._port(node) for node in names}
        for node, name in names.items():
            if ports[node].name != name:
                self._release_name(name)
                ports[node].name = name

    def rename_dimension(self, symbol: str, name: str) -> None:
        """Rename a symbolic dimension in all tensors of the main graph.

        Args:
            symbol: The present ``dim_param``.
            name: The new ``dim_param``.
        """
        graph = self.surgery.graph
        inner = (output for node in graph.nodes for output in node.outputs)
        for tensor in {id(tensor): tensor for tensor in (*graph.inputs, *inner)}.values():
            if tensor.shape is not None and symbol in tensor.shape:
                tensor.shape = [name if size == symbol else size for size in tensor.shape]

    def name_dimension(self, node: Node, axis: int | None, name: str) -> None:
        """Set the symbol of an input's or output's dimension, unless the size is fixed.

        Args:
            node: Parameter or Result of the input or output.
            axis: Axis of the dimension; ``None`` changes nothing.
            name: The symbol, a ``dim_param``.
        """
        tensor = self._port(node)
        if axis is not None and tensor.shape is not None and not isinstance(tensor.shape[axis], int):
            tensor.shape = [name if index == axis else size for index, size in enumerate(tensor.shape)]

    def forget_shapes(self, values: Iterable[Value] | None = None) -> None:
        """See `Rewriter.forget_shapes`; outputs of the model keep their ranks."""
        graph = self.surgery.graph
        ports = {id(tensor) for tensor in graph.outputs}
        every = (output for node in graph.nodes for output in node.outputs)
        for tensor in every if values is None else map(self.native, values):
            tensor.shape = [None for _ in tensor.shape] if id(tensor) in ports and tensor.shape is not None else None

    def _port(self, node: Node) -> gs.Tensor:
        graph = self.surgery.graph
        ports = graph.inputs if node.op == "Parameter" else graph.outputs
        return next(tensor for tensor in ports if tensor.name == node.name)

    def mark_permuted(self, value: Value, order: Sequence[int]) -> None:
        """See `Rewriter.mark_permuted`; `transpose_port` handles outputs of the model."""
        tensor = self.native(value)
        if not any(output is tensor for output in self.surgery.graph.outputs):
            _permute(tensor, order)

    def finish(self) -> bool:
        made = [output for node in self._made.values() for output in node.outputs]
        graphs = [*(graph for graph, _ in self.surgery.holders.values()), *self._bodies]
        drop_dead(graphs, [*self._released, *made])
        changed = WriteBack(self.surgery).run()
        if changed:
            self._edited()
        return changed

    def every(self, *kinds: str) -> Iterator[gs.Node]:
        """Yield the nodes of these native operators in the graph, its bodies and functions.

        Nodes that are created during an iteration are added to the graph that contains the yielded node.
        """
        for graph, _ in list(self.surgery.holders.values()):
            self._home = graph
            yield from [node for node in graph.nodes if node.op in kinds]
        self._home = self.surgery.graph

    def add_native(
        self, op: str, inputs: list[gs.Tensor], name: str, count: int, attributes: dict[str, Any], domain: str | None
    ) -> list[Handle]:
        """Add a node with native attributes.

        Args:
            op: Native name of the operator.
            inputs: Input tensors; an empty variable for an omitted input.
            name: Name of the node and of a single output, with a number if it is taken; ``/output_<index>`` is appended
                for several outputs.
            count: Number of outputs; those in `LEFT_OUT` have no name.
            attributes: Native attributes, with tensors as constants of graphsurgeon.
            domain: Domain of the operator; ``None`` or empty for ONNX operators.

        Returns:
            Its outputs, without types and shapes.
        """
        name = claim_name(self._names, name)
        names = [name] if count == 1 else [claim_name(self._names, f"{name}/output_{index}") for index in range(count)]
        left_out = LEFT_OUT.get(op, ())
        outputs = [gs.Variable("" if index in left_out else output) for index, output in enumerate(names)]
        node = gs.Node(op, name, attributes, inputs, outputs, domain)
        self._home.nodes.append(node)
        self._made |= {id(output): node for output in outputs}
        return outputs


def _code(dtype: Any) -> int:
    return int(onnx.helper.np_dtype_to_tensor_dtype(numpy.dtype(dtype)))


def _resized(shape: Sequence[Any], sizes: Sequence[int | None]) -> list[Any]:
    return [shape[index] if size is None else size for index, size in enumerate(sizes) if size != -1]


def _permute(tensor: gs.Tensor, order: Sequence[int]) -> None:
    if isinstance(tensor, gs.Variable) and tensor.shape is not None and len(tensor.shape) == len(order):
        tensor.shape = [tensor.shape[axis] for axis in order]


def _constant_tensor(values: Any, element_type: str) -> onnx.TensorProto:
    """Return the tensor of a constant; see `NodeMaker.constant`."""
    if isinstance(values, numpy.ndarray) and element_type != "bf16":
        dtype = onnx.helper.tensor_dtype_to_np_dtype(element_code(element_type)) if element_type else values.dtype
        return numpy_helper.from_array(values.astype(dtype, copy=False))
    listed = list(values) if isinstance(values, range | tuple) else values
    array = numpy.array(listed, numpy.int64 if element_type == "i64" else numpy.float32)
    code = element_code(element_type)
    if element_type == "bf16":
        # OpenVINO (2026.4.1) misreads the bits of bf16 in int32_data as values.
        return onnx.TensorProto(data_type=code, dims=array.shape, raw_data=rounded_bytes(array, "bf16")[0])
    return onnx.helper.make_tensor("", code, array.shape, array.reshape(-1).tolist())
