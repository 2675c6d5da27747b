"""The pass `promote-to-f32`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.names import bodies
from graphpass.dialects.openvino.rewrite import named
from graphpass.engine.passes import Changed, Pass, PassResult, Unchanged, at_node
from graphpass.errors import UnsupportedError
from graphpass.ir.types import Dialect

if TYPE_CHECKING:
    import openvino

__all__ = ["PromoteToF32"]

_HALF = frozenset({"f16", "bf16"})

#: Operators whose value is not decided by their inputs, or that hold graphs.
_NOT_STORED = frozenset(
    {"Assign", "If", "Loop", "Multinomial", "Parameter", "RandomUniform", "ReadValue", "Result", "TensorIterator"}
)

_CONVERTS = frozenset({"Convert", "ConvertLike"})

#: Constants up to this many elements become f32; larger ones stay as they are stored.
_FEW_ELEMENTS = 16


@dataclass(frozen=True)
class PromoteToF32(Pass[OpenVINOModel]):
    """Let a model that computes in f16 or bf16 compute in f32, its weights stored as they are.

    That is the form in which optimum exports f16 models: each plugin lowers the precision itself, and keeps the weights
    compressed. openvino.genai reads logits of f32 only, and caches of f16 do not run on the CPU plugin where their
    attention is not fused.
    Weights get a Convert that is marked as OpenVINO's decompression; constants of up to 16 elements become f32, which
    is exact. Weights that are quantized, with scales of f16, are left as they are (Convert, Subtract, Multiply), and a
    Convert follows, as NNCF writes it.

    Shapes:
        any; inputs, outputs, variables, and the bodies of If, Loop and TensorIterator, keep theirs and their names.

    Before:
        x (f16) -> MatMul(., weight (Constant f16)) -> Convert(f32) -> Softmax -> Convert(f16) -> y (f16)
    After:
        x (f32) -> MatMul(., Convert(weight (Constant f16), f32)) -> Softmax -> y (f32)

    Raises:
        UnsupportedError: GP327, an operator gives f16 or bf16 whatever its inputs are.
    """

    name: ClassVar[str] = "promote-to-f32"
    dialect: ClassVar[Dialect | None] = "openvino"

    def run(self, model: OpenVINOModel) -> PassResult:
        """See `Pass.run`."""
        graphs = [model.ov_model]
        for graph in graphs:
            for op in graph.get_ordered_ops():
                graphs.extend(bodies(op))
        decompression = _Decompression()
        counts = Counter({"inputs": sum(map(_is_half, model.ov_model.inputs))})
        converts: list[openvino.Node] = []
        for graph in graphs:
            converts += _widen(graph, decompression, counts)
        if not counts.total():
            return Unchanged()
        for graph in reversed(graphs):  # bodies before the graphs that hold them
            graph.validate_nodes_and_infer_types()
        counts["converts gone"] = sum(_bypass(node) for node in converts)
        for graph in graphs:
            _check(graph)
        model.ov_model.validate_nodes_and_infer_types()
        return Changed(model, {name: count for name, count in counts.items() if count})


def _is_half(port: openvino.Output | openvino.Input) -> bool:
    return port.get_element_type().to_string() in _HALF


def _stored(graph: openvino.Model) -> dict[str, bool]:
    """The nodes that depend on constants alone, by process-wide name, and whether they dequantize."""
    found: dict[str, bool] = {}
    for node in graph.get_ordered_ops():
        sources = [source.get_node().get_name() for source in node.input_values()]
        if node.get_type_name() in _NOT_STORED or not all(source in found for source in sources):
            continue
        if not sources and node.get_type_name() != "Constant":
            continue
        widens = node.get_type_name() == "Convert" and not _is_half(node.input(0))
        found[node.get_name()] = widens or any(found[source] for source in sources)
    return found


def _widen(graph: openvino.Model, decompression: _Decompression, counts: Counter[str]) -> list[openvino.Node]:
    """Make all of ``graph`` f32 that is not stored; types follow at its next validation.

    Returns:
        The Converts that may do nothing then, in topological order.
    """
    stored = _stored(graph)
    for node in reversed(graph.get_ordered_ops()):
        # What moves weights follows their Convert, which plugins look for right behind them.
        if not stored.get(node.get_name(), True) and node.get_type_name() != "Constant" and _only_read_in(node, stored):
            del stored[node.get_name()]
    converts: list[openvino.Node] = []
    widened: dict[tuple[str, int], openvino.Node] = {}
    for variable in graph.get_variables():
        info = variable.info
        if info.data_type.to_string() in _HALF:
            info.data_type = _f32()
            variable.update(info)
            counts["variables"] += 1
    for node in graph.get_ordered_ops():
        if node.get_type_name() in _CONVERTS and any(map(_is_half, (node.input(0), node.output(0)))):
            converts.append(node)
        if node.get_name() in stored:
            continue
        with at_node(node.get_friendly_name()):
            if any(map(_is_half, node.outputs())) and _set_types(node):
                counts["operators"] += 1
            for port in node.inputs():
                source = port.get_source_output()
                if not _is_half(source) or source.get_node().get_name() not in stored:
                    continue
                key = source.get_node().get_name(), source.get_index()
                if key not in widened:
                    dequantizes = stored[source.get_node().get_name()]
                    widened[key], what = decompression.of(source, dequantizes)
                    counts[what] += 1
                if node.get_type_name() == "Result":
                    widened[key].output(0).set_names(source.get_names())
                    source.set_names(set())
                port.replace_source_output(widened[key].output(0))
    return converts


def _only_read_in(node: openvino.Node, stored: dict[str, bool]) -> bool:
    """Whether ``node`` gives f16 or bf16, and only what is not stored reads it."""
    readers = [reader.get_node() for output in node.outputs() for reader in output.get_target_inputs()]
    return any(map(_is_half, node.outputs())) and all(reader.get_name() not in stored for reader in readers)


def _set_types(node: openvino.Node) -> bool:
    """Set what ``node`` says of its output's type to f32; whether it says anything."""
    if node.get_type_name() == "ReadValue":
        return False  # It follows its variable.
    names = [name for name, value in node.get_attributes().items() if isinstance(value, str) and value in _HALF]
    for name in names:
        node.set_attribute(name, "f32")
    return bool(names) and node.get_type_name() != "Parameter"


def _f32() -> openvino.Type:
    import openvino

    return openvino.Type.f32


class _Decompression:
    """Makes f32 of what is stored in f16 or bf16."""

    def __init__(self) -> None:
        self._template: openvino.Model | None = None

    def of(self, source: openvino.Output, dequantizes: bool) -> tuple[openvino.Node, str]:
        """A node that gives ``source`` in f32, and what it is."""
        from openvino import opset13

        node, called = source.get_node(), f"{source.get_node().get_friendly_name()}/f32"
        if node.get_type_name() == "Constant" and numpy.prod(node.get_output_shape(0)) <= _FEW_ELEMENTS:
            # The shape is given besides: an array without elements or dimensions keeps it.
            value = node.get_data(dtype=numpy.float32).reshape(node.get_output_shape(0))
            return named(opset13.constant(value), called), "constants"
        if dequantizes:
            return named(opset13.convert(source, "f32"), called), "quantized weights"
        convert = named(self._marked(), called)
        convert.input(0).replace_source_output(source)
        return convert, "weights"

    def _marked(self) -> openvino.Node:
        """A Convert to f32 that is marked as decompression.

        Python can read the mark but not set it, so OpenVINO's own compression makes one, and clones of it bear it, too.
        """
        import openvino
        from openvino import opset13
        from openvino._offline_transformations import compress_model_transformation

        if self._template is None:
            result = opset13.result(opset13.constant(numpy.zeros(1, numpy.float32)))
            self._template = openvino.Model([result], [], "template")
            compress_model_transformation(self._template)
        clone = self._template.clone()
        convert: openvino.Node = clone.get_results()[0].input_value(0).get_node()
        convert.output(0).set_names(set())
        return convert


def _bypass(node: openvino.Node) -> bool:
    """Let readers of a Convert that does nothing read what it reads; whether that was possible."""
    source, output = node.input_value(0), node.output(0)
    if source.get_element_type() != output.get_element_type():
        return False
    readers = output.get_target_inputs()
    if any(reader.get_node().get_type_name() == "Result" for reader in readers):
        # What an input is called, and what another output is, must not become one name.
        others = {reader.get_node().get_type_name() for reader in source.get_target_inputs()}
        if source.get_node().get_type_name() == "Parameter" or "Result" in others:
            return False
        source.add_names(output.get_names())
        output.set_names(set())
    for reader in readers:
        reader.replace_source_output(source)
    return True


def _check(graph: openvino.Model) -> None:
    stored = _stored(graph)
    for node in graph.get_ordered_ops():
        if node.get_name() not in stored and any(map(_is_half, node.outputs())):
            kind, called = node.get_type_name(), node.get_friendly_name()
            hint = "keep the model in its type: leave promote-to-f32 out of the pipeline"
            raise UnsupportedError("GP327", f"{kind} {called} gives f16 or bf16 whatever its inputs are", hint)
