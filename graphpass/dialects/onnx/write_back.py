"""Write the edits of a graphsurgeon graph back into its ModelProto."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy
import onnx
import onnx_graphsurgeon as gs
from onnx import helper, numpy_helper
from onnx_graphsurgeon.ir.tensor import LazyValues

from graphpass.dialects.onnx.graphsurgeon import LazyWeights, NodeOrigin, Surgery, inner_graphs, reads, sorted_nodes
from graphpass.dialects.onnx.tensors import Holder
from graphpass.dialects.onnx.walk import ONNX_DOMAINS
from graphpass.errors import UnsupportedError


@dataclass(slots=True)
class _Job:
    """A graph to write, with the constants of outer graphs by id."""

    graph: gs.Graph
    holder: Holder
    outer: ChainMap[int, None]


class WriteBack:
    """Writes the edits of one `Surgery`."""

    def __init__(self, surgery: Surgery) -> None:
        """Create a writer for ``surgery``."""
        self._surgery = surgery
        self._changed = False
        self._pending: list[_Job] = []
        self._weights = {
            id(origin.weights): origin for origin in surgery.tensors.values() if origin.weights is not None
        }
        #: Original outputs of the nodes of each graph.
        self._made = {
            id(holder): {name for node in holder.node for name in node.output} for _, holder in surgery.holders.values()
        }

    def run(self) -> bool:
        """Write all edits.

        Returns:
            Whether the model changed.

        Raises:
            UnsupportedError: GP344, the edited graph cannot be written.
        """
        surgery = self._surgery
        proto, graph = surgery.proto, surgery.graph
        self._pending.append(_Job(graph, proto.graph, ChainMap()))
        self._write_functions(proto, graph)
        while self._pending:
            self._write_graph(self._pending.pop())
        self._write_opsets(proto, graph)
        self._set(proto, producer_name=graph.producer_name, producer_version=graph.producer_version)
        return self._changed

    def _set(self, proto: Any, **fields: Any) -> None:
        for name, value in fields.items():
            if getattr(proto, name) != value:
                setattr(proto, name, value)
                self._changed = True

    def _write_functions(self, proto: onnx.ModelProto, graph: gs.Graph) -> None:
        holders = self._surgery.holders.values()
        known = {id(function): holder for function, holder in holders if isinstance(holder, onnx.FunctionProto)}
        for key in known.keys() - {id(function) for function in graph.functions}:
            proto.functions.remove(known[key])
            self._changed = True
        for function in graph.functions:
            if (holder := known.get(id(function))) is None:
                holder = proto.functions.add(name=function.name, domain=function.domain)
                holder.opset_import.extend(function.import_domains or [helper.make_opsetid("", function.opset)])
                holder.attribute.extend(name for name, default in function.attrs.items() if default is None)
                self._changed = True
            self._pending.append(_Job(function, holder, ChainMap()))

    def _write_graph(self, job: _Job) -> None:
        graph, holder = job.graph, job.holder
        nodes = graph.nodes if _is_sorted(graph.nodes) else sorted_nodes(graph.nodes)
        if len(nodes) < len(graph.nodes):
            raise UnsupportedError("GP344", f"the nodes of graph {graph.name} form a cycle")
        if isinstance(holder, onnx.GraphProto):
            own = self._write_initializers(job, nodes)
            self._write_ports(holder.input, graph.inputs)
            self._write_ports(holder.output, graph.outputs)
        else:
            own, nodes = job.outer, self._with_constant_nodes(nodes)
            for names, tensors in ((holder.input, graph.inputs), (holder.output, graph.outputs)):
                self._write_names(names, tensors)
        self._write_nodes(holder, nodes, own)
        if isinstance(holder, onnx.GraphProto):
            self._write_value_info(graph, holder, nodes)
        self._set(holder, name=graph.name, doc_string=graph.doc_string)

    def _write_names(self, names: Any, tensors: list[gs.Tensor]) -> None:
        if list(names) != (wanted := [tensor.name for tensor in tensors]):
            names[:] = wanted
            self._changed = True

    def _write_nodes(self, holder: Holder, nodes: list[gs.Node], known: ChainMap[int, None]) -> None:
        protos = []
        for node in nodes:
            origin = self._surgery.nodes.get(id(node))
            if origin is not None and origin.holder is holder:
                proto = origin.proto
            else:
                proto = holder.node.add()
                if origin is not None:
                    proto.CopyFrom(origin.proto)
                self._changed = True
            self._write_node(node, proto, origin, known)
            protos.append(proto)
        wanted = {id(proto): index for index, proto in enumerate(protos)}
        present = list(holder.node)
        gone = [index for index, proto in enumerate(present) if id(proto) not in wanted]
        for index in reversed(gone):
            del holder.node[index]
        present = [proto for proto in present if id(proto) in wanted]
        if gone or [wanted[id(proto)] for proto in present] != sorted(wanted.values()):
            self._changed = True
            holder.node.sort(key=lambda proto: wanted[id(proto)])

    def _write_node(
        self, node: gs.Node, proto: onnx.NodeProto, origin: NodeOrigin | None, known: ChainMap[int, None]
    ) -> None:
        self._set(proto, op_type=node.op, name=node.name or "", domain=node.domain or "")
        self._write_names(proto.input, node.inputs)
        self._write_names(proto.output, node.outputs)
        kept = origin.attributes if origin is not None else {}
        protos = {attribute.name: attribute for attribute in proto.attribute}
        for name in [name for name in protos if name not in node.attrs]:
            proto.attribute.remove(protos[name])
            self._changed = True
        for name, value in node.attrs.items():
            _, old, copy = kept.get(name, (None, _ABSENT, None))
            if value is not old or (isinstance(value, list) and value != copy):
                made = protos[name] if name in protos else proto.attribute.add()
                made.CopyFrom(_attribute(name, value, like=protos.get(name)))
                protos[name] = made
                self._changed = True
            if isinstance(value, gs.Graph):
                self._pending.append(_Job(value, protos[name].g, known))
            elif isinstance(value, gs.Constant):
                self._write_constant(protos[name].t, value)

    def _write_constant(self, proto: onnx.TensorProto | onnx.SparseTensorProto, constant: gs.Constant) -> None:
        origin = self._surgery.tensors.get(id(constant))
        self._set(proto if isinstance(proto, onnx.TensorProto) else proto.values, name=constant.name)
        values = constant._values
        if origin is not None and values is origin.values and proto is origin.weights:
            return
        if isinstance(values, LazyValues):  # elements of another constant
            made = values.tensor
        else:
            made = numpy_helper.from_array(_typed(constant), constant.name)
            if origin is not None and isinstance(origin.values, LazyWeights) and _same(made, origin.values):
                return
        if isinstance(made, onnx.SparseTensorProto) or isinstance(proto, onnx.SparseTensorProto):
            raise UnsupportedError(
                "GP344", f"the sparse constant {constant.name} was changed", "create a new gs.Constant instead"
            )
        doc = proto.doc_string
        proto.CopyFrom(made)
        proto.name, proto.doc_string = constant.name, doc
        self._changed = True

    def _write_initializers(self, job: _Job, nodes: list[gs.Node]) -> ChainMap[int, None]:
        """Remove dead initializers; write the others, new ones into the graph that reads them.

        Returns:
            Identities of the constants that the graph can read: its own, then those of outer graphs.
        """
        holder, outer = job.holder, job.outer
        direct = _constants((tensor for node in nodes for tensor in node.inputs), job.graph.outputs, job.graph.inputs)
        anywhere = direct | _constants(tensor for node in nodes for tensor in reads(node))
        own = outer.new_child()
        for weights in (holder.sparse_initializer, holder.initializer):
            for index in reversed(range(len(weights))):
                origin = self._weights.get(id(weights[index]))
                if origin is None:
                    continue
                if origin.was_read and id(origin.tensor) not in anywhere:
                    del weights[index]
                    self._changed = True
                    continue
                own[id(origin.tensor)] = None
                if isinstance(origin.tensor, gs.Constant):
                    self._write_constant(weights[index], origin.tensor)
        for key, constant in direct.items():
            if key not in own:
                self._write_constant(holder.initializer.add(), constant)
                own[key] = None
                self._changed = True
        return own

    def _with_constant_nodes(self, nodes: list[gs.Node]) -> list[gs.Node]:
        """Return the nodes of a function, after a Constant node for each new constant."""
        constants = _constants(tensor for node in nodes for tensor in node.inputs)
        made = (
            ({"value": gs.Constant("", constant._values)}, gs.Variable(constant.name))
            for constant in constants.values()
        )
        return [*(gs.Node("Constant", output.name, attributes, [], [output]) for attributes, output in made), *nodes]

    def _write_ports(self, infos: Any, tensors: list[gs.Tensor]) -> None:
        """Write inputs or outputs; declarations are kept except for changed types and shapes."""
        before = [info.SerializeToString(deterministic=True) for info in infos]
        by_name = {info.name: info for info in infos}
        after = []
        for tensor in tensors:
            origin = self._surgery.tensors.get(id(tensor))
            info = onnx.ValueInfoProto(name=tensor.name)
            if origin is not None and origin.name in by_name:
                info.CopyFrom(by_name[origin.name])
            self._update_info(info, tensor)
            after.append(info)
        if [info.SerializeToString(deterministic=True) for info in after] != before:
            del infos[:]
            infos.extend(after)
            self._changed = True

    def _write_value_info(self, graph: gs.Graph, holder: onnx.GraphProto, nodes: list[gs.Node]) -> None:
        ports = {id(tensor) for tensor in (*graph.inputs, *graph.outputs)}
        made = {id(tensor): tensor for node in nodes for tensor in node.outputs if tensor.name}
        origins = {origin.name: origin for key in made if (origin := self._surgery.tensors.get(key)) is not None}
        known = {info.name for info in holder.value_info}
        was_made = self._made.get(id(holder), set())
        # Weights may have a new type, which the value_info would contradict.
        weights = {tensor.name: tensor.data_type for tensor in holder.initializer}
        for index in reversed(range(len(holder.value_info))):
            info = holder.value_info[index]
            origin, kind = origins.get(info.name), info.type.tensor_type.elem_type
            if origin is not None:
                self._changed |= self._update_info(info, origin.tensor)
            elif info.name in was_made or weights.get(info.name, kind) != kind:
                del holder.value_info[index]
                self._changed = True
        for key, tensor in made.items():
            origin = self._surgery.tensors.get(key)
            is_new = origin is None or origin.name not in was_made
            if is_new and key not in ports and tensor.name not in known and tensor.dtype is not None:
                self._update_info(holder.value_info.add(name=tensor.name), tensor)
                self._changed = True

    def _update_info(self, info: onnx.ValueInfoProto, tensor: gs.Tensor) -> bool:
        """Declare the type of ``tensor``, keeping unsupported fields.

        Returns:
            Whether name or type changed.
        """
        origin = self._surgery.tensors.get(id(tensor))
        changed: bool = info.name != tensor.name
        info.name = tensor.name
        is_constant = isinstance(tensor, gs.Constant)
        typed = (tensor.dtype, None if tensor.shape is None else list(tensor.shape))
        is_known = bool(info.type.ByteSize()) or typed == (None, None)
        if (origin is not None and is_known and (origin.typed == typed or is_constant)) or (
            not is_constant and tensor.type != "tensor_type"
        ):
            return changed
        dtype, shape = typed
        if dtype is not None:
            info.type.tensor_type.elem_type = _code(dtype)
        if shape is None:
            info.type.tensor_type.ClearField("shape")
            return True
        dimensions = info.type.tensor_type.shape.dim
        info.type.tensor_type.shape.SetInParent()
        del dimensions[len(shape) :]
        for axis, size in enumerate(shape):
            dimension = dimensions[axis] if axis < len(dimensions) else dimensions.add()
            dimension.ClearField("value")
            if isinstance(size, str):
                dimension.dim_param = size
            elif size is not None and size >= 0:
                dimension.dim_value = size
        return True

    def _write_opsets(self, proto: onnx.ModelProto, graph: gs.Graph) -> None:
        """Import the graph's opset, and version 1 of further domains of nodes."""
        known = {entry.domain for entry in proto.opset_import}
        graphs = [graph, *inner_graphs(graph.nodes)]
        used = dict.fromkeys(node.domain for graph in graphs for node in graph.nodes if node.domain)
        for domain in used:
            if domain not in known | ONNX_DOMAINS:
                proto.opset_import.add(domain=domain, version=1)
                self._changed = True
        for entry in proto.opset_import:
            if entry.domain in ONNX_DOMAINS and graph.opset is not None:
                self._set(entry, version=graph.opset)


_ABSENT = object()


def _is_sorted(nodes: list[gs.Node]) -> bool:
    own = {id(node) for node in nodes}
    seen: set[int] = set()
    for node in nodes:
        if any(
            id(producer) in own and id(producer) not in seen for tensor in reads(node) for producer in tensor.inputs
        ):
            return False
        seen.add(id(node))
    return True


def _constants(*groups: Iterable[gs.Tensor]) -> dict[int, gs.Constant]:
    return {id(tensor): tensor for group in groups for tensor in group if isinstance(tensor, gs.Constant)}


def _typed(constant: gs.Constant) -> numpy.ndarray:
    wanted = constant._export_dtype
    values: numpy.ndarray = constant.values
    if wanted is None or wanted == values.dtype:
        return values
    return values.astype(helper.tensor_dtype_to_np_dtype(wanted) if isinstance(wanted, int) else wanted)


def _same(made: onnx.TensorProto, values: LazyWeights) -> bool:
    """Return whether loaded elements are equal to those in the file."""
    if (made.data_type, list(made.dims)) != (values.tensor.data_type, list(values.tensor.dims)):
        return False
    before, after = values.load(), numpy_helper.to_array(made)
    same: bool = before.tolist() == after.tolist() if before.dtype == object else before.tobytes() == after.tobytes()
    return same


def _attribute(name: str, value: Any, like: onnx.AttributeProto | None) -> onnx.AttributeProto:
    """Return the proto of a value; numbers and empty lists keep their type."""
    if isinstance(value, gs.Graph):
        made = onnx.AttributeProto(name=name, type=onnx.AttributeProto.GRAPH)
        made.g.SetInParent()
        return made
    if isinstance(value, gs.Constant):
        return onnx.AttributeProto(name=name, type=onnx.AttributeProto.TENSOR, t=onnx.TensorProto())
    if isinstance(value, gs.Node.AttributeRef):
        kind = gs.util.misc.convert_to_onnx_attr_type(value.type)
        return onnx.AttributeProto(name=name, type=kind, ref_attr_name=value.name)
    if isinstance(value, onnx.AttributeProto):
        return value
    if isinstance(value, numpy.ndarray):
        value = numpy_helper.from_array(value)
    elif isinstance(value, type | numpy.dtype):
        value = helper.np_dtype_to_tensor_dtype(numpy.dtype(value))
    kinds = onnx.AttributeProto
    if like is not None and like.type in {kinds.FLOAT, kinds.FLOATS} and not isinstance(value, str | bytes):
        value = [float(number) for number in value] if isinstance(value, list | tuple) else float(value)
    if isinstance(value, list | tuple) and not value:
        return helper.make_attribute(name, value, attr_type=like.type if like is not None else kinds.INTS)
    return helper.make_attribute(name, value)


def _code(dtype: Any) -> int:
    return dtype if isinstance(dtype, int) else int(helper.np_dtype_to_tensor_dtype(numpy.dtype(dtype)))
