"""Convert the computation of an OpenVINO model from f16 or bf16 to f32."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy
import openvino
from openvino import opset13
from openvino._offline_transformations import compress_model_transformation

from graphpass.dialects.openvino.names import all_models
from graphpass.errors import UnsupportedError
from graphpass.ir.values import HALVES

#: Operators whose results do not depend on their inputs alone, or that have bodies.
_NOT_STORED = frozenset(
    {"Assign", "If", "Loop", "Multinomial", "Parameter", "RandomUniform", "ReadValue", "Result", "TensorIterator"}
)

_CONVERTS = frozenset({"Convert", "ConvertLike"})

#: Largest number of elements of a constant that is converted to f32; larger constants keep their type.
_FEW_ELEMENTS = 16


def promote(native: openvino.Model) -> Mapping[str, int]:
    """Convert a model and its bodies to f32; see the pass `change-precision`.

    Returns:
        Counts of changed inputs, operators, variables, constants and Converts; empty if nothing changed.

    Raises:
        UnsupportedError: GP327, an operator returns f16 or bf16 for any type of its inputs.
    """
    graphs = list(all_models(native))
    if not any(_is_half(output) for graph in graphs for node in graph.get_ops() for output in node.outputs()):
        return {}
    decompression = _Decompression()
    counts = Counter({"inputs": sum(map(_is_half, native.inputs))})
    converts = [node for graph in graphs for node in _widen(graph, decompression, counts)]
    if not counts.total():
        return {}
    for graph in reversed(graphs):  # bodies before the graphs that contain them
        graph.validate_nodes_and_infer_types()
    counts["converts gone"] = sum(_bypass(node) for node in converts)
    for graph in graphs:
        _check(graph)
    native.validate_nodes_and_infer_types()
    return {name: count for name, count in counts.items() if count}


def _is_half(port: openvino.Output | openvino.Input) -> bool:
    return port.get_element_type().to_string() in HALVES


def _stored(graph: openvino.Model) -> dict[str, bool]:
    """Return nodes that depend on constants alone, by process-wide name; true if they dequantize."""
    stored: dict[str, bool] = {}
    for node in graph.get_ordered_ops():
        sources = [source.get_node().get_name() for source in node.input_values()]
        if node.get_type_name() in _NOT_STORED or not all(source in stored for source in sources):
            continue
        if not sources and node.get_type_name() != "Constant":
            continue
        widens = node.get_type_name() == "Convert" and not _is_half(node.input(0))
        stored[node.get_name()] = widens or any(stored[source] for source in sources)
    return stored


def _widen(graph: openvino.Model, decompression: _Decompression, counts: Counter[str]) -> list[openvino.Node]:
    """Convert all nodes except stored weights to f32.

    Returns:
        Converts from or to f16 or bf16, which may be redundant.
    """
    stored = _stored(graph)
    for node in reversed(graph.get_ordered_ops()):
        # Layout operators of weights must follow their Convert: plugins expect it directly after the constant.
        if not stored.get(node.get_name(), True) and node.get_type_name() != "Constant" and _only_read_in(node, stored):
            del stored[node.get_name()]
    converts: list[openvino.Node] = []
    widened: dict[tuple[str, int], openvino.Node] = {}
    for variable in graph.get_variables():
        info = variable.info
        if info.data_type.to_string() in HALVES:
            info.data_type = openvino.Type.f32
            variable.update(info)
            counts["variables"] += 1
    for node in graph.get_ordered_ops():
        if node.get_type_name() in _CONVERTS and any(map(_is_half, (node.input(0), node.output(0)))):
            converts.append(node)
        if node.get_name() in stored:
            continue
        if any(map(_is_half, node.outputs())) and _set_types(node):
            counts["operators"] += 1
        for port in node.inputs():
            source = port.get_source_output()
            if not _is_half(source) or source.get_node().get_name() not in stored:
                continue
            if _narrows(source.get_node()):
                port.replace_source_output(source.get_node().input_value(0))
                continue
            key = source.get_node().get_name(), source.get_index()
            if key not in widened:
                widened[key], kind = decompression.of(source, dequantizes=stored[source.get_node().get_name()])
                counts[kind] += 1
            if node.get_type_name() == "Result":
                widened[key].output(0).set_names(source.get_names())
                source.set_names(set())
            port.replace_source_output(widened[key].output(0))
    return converts


def _narrows(node: openvino.Node) -> bool:
    """Return whether ``node`` rounds f32 to f16 or bf16."""
    return node.get_type_name() in _CONVERTS and node.input(0).get_element_type() == openvino.Type.f32


def _only_read_in(node: openvino.Node, stored: dict[str, bool]) -> bool:
    """Return whether ``node`` returns f16 or bf16, and only activations read it."""
    users = [user.get_node() for output in node.outputs() for user in output.get_target_inputs()]
    return any(map(_is_half, node.outputs())) and all(user.get_name() not in stored for user in users)


def _set_types(node: openvino.Node) -> bool:
    """Set type attributes of an operator to f32.

    Returns:
        Whether it has any; ``False`` for Parameters, which are not counted as operators.
    """
    if node.get_type_name() == "ReadValue":
        return False  # the type follows from its variable
    names = [name for name, value in node.get_attributes().items() if isinstance(value, str) and value in HALVES]
    for name in names:
        node.set_attribute(name, "f32")
    return bool(names) and node.get_type_name() != "Parameter"


class _Decompression:
    def __init__(self) -> None:
        self._template: openvino.Model | None = None

    def of(self, source: openvino.Output, *, dequantizes: bool) -> tuple[openvino.Node, str]:
        node = source.get_node()
        if node.get_type_name() == "Constant" and numpy.prod(node.get_output_shape(0)) <= _FEW_ELEMENTS:
            # Reshape preserves the shape of arrays without elements or without dimensions.
            made = opset13.constant(node.get_data(dtype=numpy.float32).reshape(node.get_output_shape(0)))
            kind = "constants"
        elif dequantizes:
            made, kind = opset13.convert(source, "f32"), "quantized weights"
        else:
            made, kind = self._marked(), "weights"
            made.input(0).replace_source_output(source)
        made.set_friendly_name(f"{node.get_friendly_name()}/f32")
        return made, kind

    def _marked(self) -> openvino.Node:
        """Return a Convert to f32 that is marked as decompression.

        OpenVINO's Python API can read this mark, but not set it. OpenVINO's own compression sets it, and clones keep
        it.
        """
        if self._template is None:
            result = opset13.result(opset13.constant(numpy.zeros(1, numpy.float32)))
            self._template = openvino.Model([result], [], "template")
            compress_model_transformation(self._template)
        clone = self._template.clone()
        convert: openvino.Node = clone.get_results()[0].input_value(0).get_node()
        convert.output(0).set_names(set())
        return convert


def _bypass(node: openvino.Node) -> bool:
    """Remove a Convert whose types are equal.

    Returns:
        Whether it was removed. It is kept if an input or another output would get its names.
    """
    source, output = node.input_value(0), node.output(0)
    if source.get_element_type() != output.get_element_type():
        return False
    users = output.get_target_inputs()
    if any(user.get_node().get_type_name() == "Result" for user in users):
        # Names of an input or of another output must not be added to this output.
        others = {user.get_node().get_type_name() for user in source.get_target_inputs()}
        if source.get_node().get_type_name() == "Parameter" or "Result" in others:
            return False
        source.add_names(output.get_names())
        output.set_names(set())
    for user in users:
        user.replace_source_output(source)
    return True


def _check(graph: openvino.Model) -> None:
    stored = _stored(graph)
    for node in graph.get_ordered_ops():
        if node.get_name() not in stored and any(map(_is_half, node.outputs())):
            kind, called = node.get_type_name(), node.get_friendly_name()
            hint = "keep the model in its type: leave change-precision out of the pipeline"
            raise UnsupportedError("GP327", f"{kind} {called} returns f16 or bf16 for any type of its inputs", hint)
