"""`OpenVINORewriter`: edits an OpenVINO model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy
import openvino
from openvino import opset6, opset13
from openvino.op.util import Variable, VariableInfo
from openvino.utils.node_factory import NodeFactory

from graphpass.dialects.openvino.ports import port_name
from graphpass.ir.graph import Graph, Node, Use, Value
from graphpass.ir.operators import REDUCTIONS
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.types import Dimension
from graphpass.ir.writer import Handle, Operand

#: Inputs that are attributes in the neutral form: operator -> (input, attribute, whether it is a scalar).
CONSTANT_INPUTS = {
    "CumSum": (1, "axis", True),
    "Gather": (2, "axis", True),
    **dict.fromkeys(REDUCTIONS, (1, "axes", False)),
    "ScatterElementsUpdate": (3, "axis", True),
    "ScatterUpdate": (3, "axis", True),
    "Slice": (4, "axes", False),
    "Split": (1, "axis", True),
    "Squeeze": (1, "axes", False),
    "Transpose": (1, "order", False),
    "Unsqueeze": (1, "axes", False),
    "VariadicSplit": (1, "axis", True),
}

#: Native names of attributes by their neutral names.
NATIVE_NAMES = {"to": "destination_type", "keep": "keep_dims", "zero_keeps": "special_zero"}

_BINARY = frozenset(
    {"Add", "BitwiseAnd", "BitwiseOr", "Divide", "Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "LogicalAnd"}
    | {"LogicalOr", "Maximum", "Minimum", "Multiply", "NotEqual", "Power", "Select", "Subtract"}
)

DEFAULTS: dict[str, dict[str, Any]] = {
    **{kind: {"auto_broadcast": "NUMPY"} for kind in _BINARY},
    "Broadcast": {"mode": "NUMPY"},
    "CumSum": {"exclusive": False, "reverse": False},
    "Divide": {"auto_broadcast": "NUMPY", "m_pythondiv": True},
    "Gather": {"batch_dims": 0},
    "MatMul": {"transpose_a": False, "transpose_b": False},
    "Pad": {"pad_mode": "constant"},
    "Range": {"output_type": "i64"},
    **{kind: {"keep_dims": False} for kind in REDUCTIONS},
    "Reshape": {"special_zero": True},
    "ScaledDotProductAttention": {"causal": False},
    "ScatterElementsUpdate": {"reduction": "none", "use_init_val": True},
    "ShapeOf": {"output_type": "i64"},
}


class OpenVINORewriter(Rewriter):
    """Edits nodes in place, which keeps names and all other properties."""

    def __init__(self, native: openvino.Model, graph: Graph, edited: Callable[[], None]) -> None:
        self.graph = graph
        self._native = native
        self._edited = edited
        self._reads: dict[str, openvino.Node] = {}
        self._replaced: dict[Value, openvino.Output] = {}
        self._shapes: dict[openvino.Output, openvino.PartialShape] = {}
        self._changed = False
        self._factories: dict[int, NodeFactory] = {}

    def native(self, value: Value) -> Handle:
        if value in self._replaced:
            return self._replaced[value]
        return self.graph.producer(value).native.output(value.port)

    def mark_changed(self) -> None:
        """Record an edit made without this rewriter, such as one of a loop's body."""
        self._changed = True

    def type_of(self, handle: Handle) -> str:
        name: str = handle.get_element_type().to_string()
        return name

    def make(
        self, kind: str, inputs: Sequence[Operand], name: str, count: int, neutral: Mapping[str, Any]
    ) -> list[Handle]:
        """See `NodeMaker.make`; the attribute ``opset`` selects an operator set other than 13.

        Returns:
            The outputs, as `NodeMaker.make`.
        """
        attributes = {NATIVE_NAMES.get(key, key): value for key, value in neutral.items()}
        opset = attributes.pop("opset", 13)
        sources = [self.handle(operand, f"{name}/input_{port}") for port, operand in enumerate(inputs)]
        if kind == "Slice" and len(sources) == 3:
            steps = [1] * len(attributes["axes"])
            sources.append(self.constant(steps, "i64", f"{name}/step"))
        port, key, single = CONSTANT_INPUTS.get(kind, (0, "", False))
        if key in attributes:
            value = attributes.pop(key)
            sources.insert(port, self.constant(int(value) if single else list(value), "i64", f"{name}/{key}"))
        if "mode" in attributes and kind == "Broadcast":
            attributes["mode"] = attributes["mode"].upper()
        defaults = DEFAULTS.get(kind, {}) if opset == 13 else {}
        factory = self._factories.setdefault(opset, NodeFactory(f"opset{opset}"))
        node = factory.create(kind, sources, defaults | attributes)
        node.set_friendly_name(name)
        outputs: list[Handle] = node.outputs()
        assert len(outputs) == count, f"{kind} has {len(outputs)} outputs, not {count}"
        return outputs

    def constant(self, values: Any, element_type: str, name: str) -> Handle:
        if element_type == "i64" or isinstance(values, numpy.ndarray):
            array = values if isinstance(values, numpy.ndarray) else numpy.array(_listed(values), numpy.int64)
            # OpenVINO's bindings (2026.4.1) read arrays of f16 that are not contiguous as i16.
            array = numpy.asarray(array, order="C")
            kind = getattr(openvino.Type, element_type) if element_type else None
            node = opset13.constant(array) if kind is None else opset13.constant(array, dtype=kind)
        else:
            node = opset13.constant(values, dtype=getattr(openvino.Type, element_type))
        node.set_friendly_name(name)
        return node.output(0)

    def input(self, name: str, element_type: str, shape: Sequence[Dimension] | openvino.PartialShape | None) -> Handle:
        """See `Rewriter.input`; an inner tensor with this name loses the name.

        Returns:
            The output of the Parameter.
        """
        self._release_name(name)
        sizes = openvino.PartialShape.dynamic() if shape is None else _partial(shape)
        parameter = opset13.parameter(sizes, getattr(openvino.Type, element_type))
        parameter.set_friendly_name(name)
        parameter.output(0).set_names({name})
        self._native.add_parameters([parameter])
        self._changed = True
        return parameter.output(0)

    def _release_name(self, name: str) -> None:
        inner = self._tensors.get(name)
        if inner is not None:
            inner.set_names(inner.get_names() - {name})

    @cached_property
    def _tensors(self) -> dict[str, openvino.Output]:
        outputs = (output for op in self._native.get_ops() for output in op.outputs())
        return {name: output for output in outputs for name in output.get_names()}

    def output(self, name: str, source: Handle, element_type: str, shape: Sequence[Dimension]) -> None:  # noqa: ARG002
        """See `Rewriter.output`; types and shapes are inferred."""
        self._release_name(name)
        self._add_result(name, source)

    def _add_result(self, name: str, source: Handle) -> None:
        result = opset13.result(source)
        result.set_friendly_name(name)
        result.output(0).add_names({name})
        self._native.add_results([result])
        self._changed = True

    def size(self, operand: Operand, axis: int, name: str, shape: Handle | None = None) -> Handle:
        whole = self.op("ShapeOf", operand, name=f"{name}/shape") if shape is None else shape
        return self.op("Gather", whole, [axis], name=name, axis=0)

    def clone(self, node: Node, inputs: Mapping[int, Operand], name: str, axes: Sequence[int] | None = None) -> Handle:
        sources = dict(enumerate(node.native.input_values()))
        sources |= {port: self.handle(source, f"{name}/input_{port}") for port, source in inputs.items()}
        attributes = node.native.get_attributes()
        if axes is not None and node.op in CONSTANT_INPUTS:
            sources[CONSTANT_INPUTS[node.op][0]] = self._axes_input(node, axes, name)
        elif axes is not None:
            attributes["axis"] = _signed(node, axes[0], len(sources[0].get_partial_shape()))
        made = NodeFactory("opset13").create(node.native.get_type_name(), list(sources.values()), attributes)
        made.set_friendly_name(name)
        return made.output(0)

    def replace(self, old: Value, new: Handle) -> None:
        output = self.native(old)
        new.get_node().set_friendly_name(self.graph.producer(old).name)
        output.replace(new)
        self._replaced[old] = new
        self._changed = True

    def redirect_uses(self, old: Operand, new: Handle, only: Callable[[Use], bool] | None = None) -> int:
        """See `Rewriter.redirect_uses`; for a handle, users outside of `graph` are redirected, too.

        Returns:
            The number of redirected uses.
        """
        count = 0
        if isinstance(old, Value):
            uses = self.graph.uses(old)
            ports = [
                use.node.native.input(use.port)
                for use in uses
                if use.node.op != "Result" and (only is None or only(use))
            ]
        else:
            ports = [port for port in old.get_target_inputs() if port.get_node().get_type_name() != "Result"]
        for port in ports:
            port.replace_source_output(new)
            count += 1
        self._changed |= count > 0
        return count

    def redirect(self, node: Node, port: int, source: Operand) -> None:
        entry, handle = node.native.input(port), self.handle(source, f"{node.name}/input_{port}")
        if node.op == "Result":
            # The name of a Result is the name of the tensor that it reads.
            old, names = entry.get_source_output(), node.native.output(0).get_names()
            entry.replace_source_output(handle)
            old.set_names(old.get_names() - names)
            handle.set_names(handle.get_names() | names)
        else:
            entry.replace_source_output(handle)
        self._changed = True

    def set_input(self, node: Node, port: int, source: Operand) -> None:
        """See `Rewriter.set_input`; an operator that omits the input is created again."""
        if port < node.native.get_input_size():
            self.redirect(node, port, source)
            return
        inputs = dict(enumerate(node.native.input_values())) | {port: source}
        self.replace(node.outputs[0], self.clone(node, inputs, node.name))

    def add_past(self, like: Node, name: str, sizes: Sequence[int | None], initial: Handle | None) -> Handle:
        self._changed = True
        element_type = like.native.get_output_element_type(0)
        if like.op == "Parameter":
            shape = _resized(like.native.get_output_partial_shape(0), sizes)
            parameter = opset13.parameter(shape, element_type)
            parameter.set_friendly_name(name)
            parameter.output(0).set_names({name})
            self._native.add_parameters([parameter])
            return parameter.output(0)
        old = self._native.get_variable_by_id(like.attributes["variable"])
        shape = _resized(old.info.data_shape, sizes)
        return self.add_variable(name, old.info.data_type.to_string(), shape, initial, f"{name}/read")

    def add_variable(
        self,
        variable_id: str,
        element_type: str,
        shape: Sequence[Dimension] | openvino.PartialShape | None,
        initial: Handle | None,
        name: str,
    ) -> Handle:
        """Add a variable.

        Args:
            variable_id: Id of the variable.
            element_type: OpenVINO's short name, ``f16``.
            shape: Shape of the variable; symbols and ``None`` in it are dynamic, ``None`` alone is any rank.
            initial: Initial value; ``None`` for zeros, with size 0 along dynamic dimensions.
            name: Name of the ReadValue.

        Returns:
            The output of its ReadValue.
        """
        self._changed = True
        info = VariableInfo()
        info.variable_id, info.data_type = variable_id, getattr(openvino.Type, element_type)
        info.data_shape = _partial(shape)
        variable = Variable(info)
        self._native.add_variables([variable])
        if initial is None:
            read = opset6.read_value(variable)
        else:
            # The Python binding requires nodes with a single output.
            start = initial.get_node()
            if start.get_output_size() > 1:
                start = opset13.concat([initial], 0)
                start.set_friendly_name(f"{variable_id}/start")
            read = opset6.read_value(start, variable)
        read.set_friendly_name(name)
        self._reads[variable_id] = read
        return read.output(0)

    def add_present(self, like: Node, name: str, sizes: Sequence[int | None], source: Handle) -> None:  # noqa: ARG002
        """See `Rewriter.add_present`; sizes are inferred."""
        if like.op == "Result":
            self._add_result(name, source)
        else:
            self.add_assign(name, source, f"{name}/write")

    def add_assign(self, variable_id: str, source: Handle, name: str) -> None:
        """Add the Assign of a variable.

        Args:
            variable_id: Id of a variable of `add_variable`.
            source: Value of the variable after the step.
            name: Name of the Assign.
        """
        # The Python binding requires a node with a single output, so the source is connected afterwards.
        assign = opset6.assign(self._reads[variable_id], self._native.get_variable_by_id(variable_id))
        assign.input(0).replace_source_output(source)
        assign.set_friendly_name(name)
        self._native.add_sinks([assign])
        self._changed = True

    def drop(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            self._changed = True
            if node.op == "Parameter":
                self._native.remove_parameter(node.native)
            elif node.op == "Result":
                self._native.remove_result(node.native)
            elif node.op == "Assign":
                self._native.remove_sink(node.native)
                self._native.remove_variable(self._native.get_variable_by_id(node.attributes["variable"]))

    def adopt(self, node: Node, name: str) -> None:
        """Rename a node that moves to another model, and remove the names of its tensors.

        Args:
            node: A node of this rewriter's model.
            name: Its name in the other model.
        """
        node.native.set_friendly_name(name)
        for output in node.native.outputs():
            output.set_names(set())

    def drop_input(self, name: str) -> bool:
        named = (port for port in self._native.inputs if port_name(port) == name or name in port.get_names())
        if (port := next(named, None)) is None:
            return False
        # Nodes that a rewrite removed count as users until Python frees them.
        living = {node.get_name() for node in self._native.get_ops()}
        if any(reader.get_node().get_name() in living for reader in port.get_target_inputs()):
            return False
        self._native.remove_parameter(port.get_node())
        self._changed = True
        return True

    def rename_ports(self, names: Mapping[Node, str]) -> None:
        """See `Rewriter.rename_ports`; other names of their tensors are removed."""
        for name in names.values():
            self._release_name(name)
        for node, name in names.items():
            # The name of a Result is the name of the tensor that it reads.
            node.native.output(0).set_names({name})
            node.native.set_friendly_name(name)
            self._changed = True

    def declare_type(self, target: Value | Node, element_type: str) -> None:
        """See `Rewriter.declare_type`; types of other values are inferred."""
        parameter = (self.graph.producer(target) if isinstance(target, Value) else target).native
        parameter.set_element_type(getattr(openvino.Type, element_type))
        self._changed = True

    def whole_shape(self, node: Node) -> tuple[int, ...]:
        """Return all axes, as `Rewriter.whole_shape`; OpenVINO's ShapeOf has no start or end."""
        return tuple(range(node.source().rank or 0))

    def set_axes(self, node: Node, axes: Sequence[int]) -> None:
        self._changed = True
        if node.op in CONSTANT_INPUTS:
            port = CONSTANT_INPUTS[node.op][0]
            node.native.input(port).replace_source_output(self._axes_input(node, axes, node.name))
        else:
            node.native.set_attribute("axis", _signed(node, axes[0], len(node.native.get_input_partial_shape(0))))

    def set_shape(self, reshape: Node, shape: Sequence[int]) -> None:
        self._changed = True
        reshape.native.set_attribute("special_zero", True)
        reshape.native.input(1).replace_source_output(self.constant(list(shape), "i64", f"{reshape.name}/shape"))

    def transpose_port(self, node: Node, order: Sequence[int]) -> None:
        self._changed = True
        if node.op == "Parameter":
            node.native.set_partial_shape(_transposed(node.native.get_output_partial_shape(0), order))
            node.native.constructor_validate_and_infer_types()
        elif node.op == "ReadValue":
            self._reshape_variable(node, lambda shape: _transposed(shape, order))

    def resize_port(self, node: Node, sizes: Sequence[int | None]) -> None:
        """See `Rewriter.resize_port`; inputs are resized together in `finish`."""
        if node.op == "Parameter":
            self._changed = True
            self._shapes[node.native.output(0)] = _resized(node.native.get_output_partial_shape(0), sizes)
        elif node.op == "ReadValue":
            self._reshape_variable(node, lambda shape: _resized(shape, sizes))

    def forget_shapes(self, values: Iterable[Value] | None = None) -> None:
        """See `Rewriter.forget_shapes`; OpenVINO infers all shapes."""

    def _reshape_variable(self, node: Node, change: Callable[[openvino.PartialShape], openvino.PartialShape]) -> None:
        self._changed = True
        variable = self._native.get_variable_by_id(node.attributes["variable"])
        info = VariableInfo()
        info.variable_id, info.data_type = variable.info.variable_id, variable.info.data_type
        info.data_shape = change(variable.info.data_shape)
        variable.update(info)

    def mark_permuted(self, value: Value, order: Sequence[int]) -> None:
        """See `Rewriter.mark_permuted`; OpenVINO infers all shapes."""

    def finish(self) -> bool:
        """See `Rewriter.finish`; OpenVINO drops dead nodes by itself.

        Returns:
            Whether the model changed.
        """
        if self._shapes:
            self._native.reshape(self._shapes)
        if self._changed:
            self._native.validate_nodes_and_infer_types()
            self._edited()
        return self._changed

    def _axes_input(self, node: Node, axes: Sequence[int], name: str) -> Handle:
        single = node.native.get_input_partial_shape(CONSTANT_INPUTS[node.op][0]).rank.get_length() == 0
        return self.constant(axes[0] if single else list(axes), "i64", f"{name}/axes")


def _partial(shape: Sequence[Dimension] | openvino.PartialShape | None) -> openvino.PartialShape:
    if shape is None:
        return openvino.PartialShape.dynamic()
    if isinstance(shape, openvino.PartialShape):
        return shape
    return openvino.PartialShape([size if isinstance(size, int) else -1 for size in shape])


def _listed(values: Any) -> Any:
    return list(values) if isinstance(values, range | tuple) else values


def _signed(node: Node, axis: int, rank: int) -> int:
    """Return ``axis`` in the node's notation: the CPU plugin distinguishes -1 and 3."""
    return axis - rank if axis >= 0 and node.native.get_attributes()["axis"] < 0 else axis


def _resized(shape: openvino.PartialShape, sizes: Sequence[int | None]) -> openvino.PartialShape:
    made = [shape[axis] if size is None else openvino.Dimension(size) for axis, size in enumerate(sizes) if size != -1]
    return openvino.PartialShape(made)


def _transposed(shape: openvino.PartialShape, order: Sequence[int]) -> openvino.PartialShape:
    return shape if shape.rank.is_dynamic else openvino.PartialShape([shape[axis] for axis in order])
