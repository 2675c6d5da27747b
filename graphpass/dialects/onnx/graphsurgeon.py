"""Edit an `onnx.ModelProto` as an onnx-graphsurgeon graph without losing unsupported fields.

The importer and exporter of graphsurgeon 0.6.1 have these faults:

- They drop metadata, doc strings of nodes and values, denotations, quantization annotations, overloads, and unused
  initializers and value_info.
- They copy weights of outer graphs into bodies.
- They convert FLOAT8E4M3FNUZ to FLOAT8E4M3FN.
- They fail on empty list attributes, and on changed constants of 4 bits or of strings.
- ``toposort`` is recursive.

Here graphsurgeon's objects are created from the ModelProto, and `graphpass.dialects.onnx.write_back` writes only the
edits back into the ModelProto.
"""

from __future__ import annotations

from collections import ChainMap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import onnx
import onnx_graphsurgeon as gs
from onnx import numpy_helper
from onnx_graphsurgeon.ir.tensor import LazyValues

from graphpass.dialects.onnx.tensors import embedded, nbytes, shape_of
from graphpass.dialects.onnx.walk import ONNX_DOMAINS, opset_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import numpy

    from graphpass.dialects.onnx.tensors import Holder


class LazyWeights(LazyValues):  # type: ignore[misc]
    """The elements of a constant, read on first use.

    Attributes:
        tensor: The `onnx.TensorProto`.
    """

    def __init__(self, tensor: onnx.TensorProto, path: Path | None) -> None:
        """Create a reference to ``tensor``; external data is in the folder of ``path``."""
        self.tensor = tensor
        self.shape = list(tensor.dims)
        self.dtype = _dtype(tensor.data_type)
        self.nbytes = nbytes(tensor)
        self._path = path

    def load(self) -> numpy.ndarray:
        """Return the elements in the tensor's shape, strings as objects.

        Raises:
            ReadError: GP105, external data is missing.
        """
        values: numpy.ndarray = numpy_helper.to_array(embedded(self.tensor, self._path))
        return values


class SparseWeights(gs.ir.tensor.SparseValues):  # type: ignore[misc]
    """The elements of a sparse constant, which graphsurgeon presents as dense."""

    def __init__(self, tensor: onnx.SparseTensorProto) -> None:
        """Create a reference to ``tensor``."""
        self.tensor = tensor
        self.shape = list(tensor.dims)
        self.dtype = _dtype(tensor.values.data_type)
        self.nbytes = nbytes(tensor.values)


class SurgeonGraph(gs.Graph):  # type: ignore[misc]
    """A graphsurgeon graph with a topological sort that is stable and not recursive."""

    def toposort(
        self, recurse_subgraphs: bool = True, recurse_functions: bool = True, mode: str = "full"
    ) -> SurgeonGraph:
        """Sort the nodes; see `onnx_graphsurgeon.Graph.toposort`.

        Args:
            recurse_subgraphs: Whether to sort bodies, too.
            recurse_functions: Whether to sort the nodes of functions, too.
            mode: ``full`` or ``nodes``; ``functions`` has no effect: the list keeps its order.

        Returns:
            This graph.
        """
        graphs = [self, *(self.functions if recurse_functions else ())] if mode != "functions" else []
        for graph in graphs:
            for inner in (graph, *(inner_graphs(graph.nodes) if recurse_subgraphs else ())):
                inner.nodes[:] = sorted_nodes(inner.nodes)
        return self


@dataclass(frozen=True, slots=True)
class NodeOrigin:
    """The proto of a node, and the original attributes of the node.

    Attributes:
        node: The node; this reference prevents reuse of its id.
        proto: The NodeProto of the node.
        holder: The graph or function that contains the NodeProto.
        attributes: By name, the AttributeProto, the value created from it, and a copy of the value if it is a list.
    """

    node: gs.Node
    proto: onnx.NodeProto
    holder: Holder
    attributes: dict[str, tuple[onnx.AttributeProto, Any, Any]]


@dataclass(frozen=True, slots=True)
class TensorOrigin:
    """The proto of a tensor, and the original type of the tensor.

    Attributes:
        tensor: The tensor; this reference prevents reuse of its id.
        name: The original name.
        typed: The original dtype and shape; ``None`` for a constant.
        weights: The initializer of a constant.
        values: The original elements of a constant.
        was_read: Whether the constant had users.
    """

    tensor: gs.Tensor
    name: str
    typed: tuple[Any, Any] | None
    weights: onnx.TensorProto | onnx.SparseTensorProto | None = None
    values: Any = None
    was_read: bool = False


@dataclass(slots=True)
class _Scope:
    """A graph, body or function under construction, with the tensors in its scope."""

    holder: Holder
    graph: gs.Graph
    tensors: ChainMap[str, gs.Tensor]
    infos: dict[str, onnx.ValueInfoProto] = field(default_factory=dict)


class Surgery:
    """One edit of a model: create it, change `graph`, write back, once.

    Attributes:
        graph: The main graph.
        nodes: Origins of nodes by id.
        tensors: Origins of tensors by id.
        main: Tensors of the main graph by name.
        holders: Each graph, body and function with its proto, by the id of the graphsurgeon graph.
    """

    def __init__(self, proto: onnx.ModelProto, path: Path | None) -> None:
        self.proto = proto
        self.nodes: dict[int, NodeOrigin] = {}
        self.tensors: dict[int, TensorOrigin] = {}
        self.holders: dict[int, tuple[gs.Graph, Holder]] = {}
        self._path = path
        self._opset = opset_of(proto) or None
        functions = [self._function(function) for function in proto.functions]
        self.graph = self._empty(proto.graph, functions)
        self._fill(_Scope(proto.graph, self.graph, ChainMap()))

    def _empty(self, holder: Holder, functions: list[gs.Function]) -> SurgeonGraph:
        proto = self.proto
        graph = SurgeonGraph(
            name=holder.name,
            doc_string=holder.doc_string,
            opset=self._opset,
            import_domains=list(proto.opset_import),
            producer_name=proto.producer_name,
            producer_version=proto.producer_version,
            ir_version=proto.ir_version,
        )
        # All graphs of a model share one list; an assignment through graphsurgeon would merge lists instead.
        object.__setattr__(graph, "_functions", functions)
        return graph

    def _function(self, proto: onnx.FunctionProto) -> gs.Function:
        domains = list(proto.opset_import)
        opset = next((entry.version for entry in domains if entry.domain in ONNX_DOMAINS), self._opset)
        defaults = {attribute.name: attribute for attribute in proto.attribute_proto}
        function = gs.Function(
            proto.name,
            proto.domain,
            doc_string=proto.doc_string,
            opset=opset,
            import_domains=domains,
            attrs=dict.fromkeys(proto.attribute) | defaults,
        )
        self._fill(_Scope(proto, function, ChainMap()))
        return function

    def _fill(self, outermost: _Scope) -> None:
        pending = [outermost]
        while pending:
            scope = pending.pop()
            self.holders[id(scope.graph)] = (scope.graph, scope.holder)
            self._declare(scope)
            scope.graph.nodes.extend(self._node(proto, scope, pending) for proto in scope.holder.node)
            self._connect_ports(scope)
        if isinstance(outermost.holder, onnx.GraphProto):
            self.main = dict(outermost.tensors.maps[0])
        self._note_reads()

    def _declare(self, scope: _Scope) -> None:
        """Create tensors for the initializers, inputs and node outputs of a graph."""
        own, holder = scope.tensors.maps[0], scope.holder
        if isinstance(holder, onnx.GraphProto):
            scope.infos = {info.name: info for info in (*holder.value_info, *holder.output, *holder.input)}
            for tensor in holder.initializer:
                constant = gs.Constant(tensor.name, LazyWeights(tensor, self._path), _location(tensor))
                own[tensor.name] = self._note(constant, tensor)
            for sparse in holder.sparse_initializer:
                constant = gs.Constant(sparse.values.name, SparseWeights(sparse), _location(sparse.values))
                own[sparse.values.name] = self._note(constant, sparse)
            inputs = [info.name for info in holder.input]
        else:
            inputs = list(holder.input)
        for name in (*inputs, *(name for node in holder.node for name in node.output)):
            if name and name not in own:
                own[name] = self._variable(name, scope)

    def _variable(self, name: str, scope: _Scope) -> gs.Variable:
        info = scope.infos.get(name)
        variable = gs.Variable(name)
        if info is not None and info.type.ByteSize():
            kind = info.type.WhichOneof("value")
            typed = getattr(info.type, kind)
            variable.type = kind
            if kind == "tensor_type":
                variable.dtype = _dtype(typed.elem_type)
                shape = shape_of(typed)
                variable.shape = None if shape is None else list(shape)
        return self._note(variable)

    def _note(self, tensor: gs.Tensor, weights: onnx.TensorProto | onnx.SparseTensorProto | None = None) -> gs.Tensor:
        typed = None if weights is not None else (tensor.dtype, None if tensor.shape is None else list(tensor.shape))
        values = None if weights is None else tensor._values
        self.tensors[id(tensor)] = TensorOrigin(tensor, tensor.name, typed, weights, values)
        return tensor

    def _node(self, proto: onnx.NodeProto, scope: _Scope, pending: list[_Scope]) -> gs.Node:
        kept = {}
        for attribute in proto.attribute:
            value = self._attribute(attribute, scope, pending)
            kept[attribute.name] = (attribute, value, list(value) if isinstance(value, list) else None)
        node = gs.Node(
            proto.op_type,
            proto.name,
            {name: value for name, (_, value, _) in kept.items()},
            [self._read(name, scope) for name in proto.input],
            [scope.tensors.maps[0][name] if name else gs.Variable.empty() for name in proto.output],
            proto.domain if proto.HasField("domain") else None,
        )
        self.nodes[id(node)] = NodeOrigin(node, proto, scope.holder, kept)
        return node

    def _read(self, name: str, scope: _Scope) -> gs.Tensor:
        if not name:
            return gs.Variable.empty()
        if name not in scope.tensors:  # it has no producer
            scope.tensors[name] = self._variable(name, scope)
        return scope.tensors[name]

    def _attribute(self, proto: onnx.AttributeProto, scope: _Scope, pending: list[_Scope]) -> Any:
        """Return an attribute as graphsurgeon has it; unsupported kinds remain protos."""
        if proto.ref_attr_name:
            kind = gs.util.misc.convert_from_onnx_attr_type(proto.type)
            return gs.Node.AttributeRef(proto.ref_attr_name, kind)
        if proto.type == proto.GRAPH:
            body = self._empty(proto.g, self.graph.functions if hasattr(self, "graph") else [])
            pending.append(_Scope(proto.g, body, scope.tensors.new_child()))
            return body
        if proto.type == proto.TENSOR:
            return self._note(gs.Constant(proto.t.name, LazyWeights(proto.t, self._path), _location(proto.t)), proto.t)
        if proto.type in {proto.FLOAT, proto.INT}:
            return onnx.helper.get_attribute_value(proto)
        if proto.type in {proto.FLOATS, proto.INTS}:
            return list(onnx.helper.get_attribute_value(proto))
        if proto.type == proto.STRING:
            return _text(proto.s)
        if proto.type == proto.STRINGS:
            return [_text(string) for string in proto.strings]
        return proto

    def _connect_ports(self, scope: _Scope) -> None:
        holder, graph = scope.holder, scope.graph
        is_graph = isinstance(holder, onnx.GraphProto)
        inputs, outputs = (
            [info.name if is_graph else info for info in infos] for infos in (holder.input, holder.output)
        )
        graph.inputs = [self._read(name, scope) for name in inputs]
        graph.outputs = [self._read(name, scope) for name in outputs]

    def _note_reads(self) -> None:
        read = {id(tensor) for graph, _ in self.holders.values() for tensor in graph.outputs}
        for key, origin in self.tensors.items():
            if origin.weights is not None and (key in read or origin.tensor.outputs):
                self.tensors[key] = TensorOrigin(
                    origin.tensor, origin.name, origin.typed, origin.weights, origin.values, was_read=True
                )


def inner_graphs(nodes: Iterable[gs.Node]) -> Iterator[gs.Graph]:
    """Yield the bodies of nodes, nested ones included."""
    pending = list(nodes)
    while pending:
        for value in pending.pop().attrs.values():
            if isinstance(value, gs.Graph):
                yield value
                pending.extend(value.nodes)


def reads(node: gs.Node) -> Iterator[gs.Tensor]:
    """Yield the tensors that a node reads, including those that its bodies capture."""
    yield from node.inputs
    for body in inner_graphs([node]):
        for inner in body.nodes:
            yield from inner.inputs
        yield from body.outputs


def sorted_nodes(nodes: list[gs.Node]) -> list[gs.Node]:
    """Sort nodes topologically; a node that comes too late is moved before its first user.

    Returns:
        The nodes; fewer than given if some form a cycle.
    """
    own = {id(node) for node in nodes}
    ordered: list[gs.Node] = []
    done: set[int] = set()
    entered: set[int] = set()
    for root in nodes:
        pending = [root]
        while pending:
            node = pending[-1]
            if id(node) in done:
                pending.pop()
                continue
            producers = [producer for tensor in reads(node) for producer in tensor.inputs]
            missing = [
                producer
                for producer in producers
                if id(producer) in own and id(producer) not in done and producer is not node
            ]
            if not missing:
                pending.pop()
                done.add(id(node))
                ordered.append(node)
            elif id(node) in entered:
                return ordered  # the node depends on itself
            else:
                entered.add(id(node))
                pending += reversed(missing)
    return ordered


def _dtype(code: int) -> Any:
    """Return the type of numpy or ml_dtypes; ONNX's code if there is none."""
    try:
        return onnx.helper.tensor_dtype_to_np_dtype(code)
    except KeyError:
        return code


def _location(tensor: onnx.TensorProto) -> int | None:
    return int(tensor.data_location) if tensor.HasField("data_location") else None


def _text(content: bytes) -> str | bytes:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content
