"""Hash of the structure of an OpenVINO model, without reading weights."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy
import openvino

from graphpass.dialects.openvino.names import bodies
from graphpass.storage.weight_file import MappedWeights

_SMALL = 1024
_SAMPLE = 64

#: Keys of rt_info that OpenVINO writes into each model.
_STAMPS = frozenset({"OpenVINO Runtime", "Runtime_version", "version"})


def digest(ov_model: openvino.Model, mapped: MappedWeights, *, shapes: bool = True) -> str:
    """Return a hash of ``ov_model``: models with equal hashes have equal graphs.

    The hash of a node includes the hashes of its inputs, so the order of nodes in the file is irrelevant.

    Args:
        ov_model: The model.
        mapped: Ranges of constants in unchanged files.
        shapes: Whether to include inferred shapes. Reading a model infers them again, with possibly different results.
    """
    graphs = [("", ov_model)]
    for _, graph in graphs:
        for op in graph.get_ordered_ops():
            if inside := bodies(op):
                graphs.extend((op.get_name(), body) for body in inside)
    within: dict[str, list[str]] = {}
    for owner, graph in reversed(graphs):  # bodies before the graphs that contain them
        within.setdefault(owner, []).append(_graph_digest(graph, within, mapped, shapes=shapes))
    return _hash(within[""], _plain(ov_model.rt_info, leave_out=_STAMPS))


def loop_digest(op: openvino.Node) -> str | None:
    """Return a hash of the function that a Loop or TensorIterator computes.

    The hash includes all elements of constants; shapes follow from the inputs.

    Returns:
        The hash; ``None`` if the body has variables, random numbers or further bodies.
    """
    inside: dict[str, str] = {}
    (body,) = bodies(op)
    for own in body.get_ordered_ops():
        kind, attributes = own.get_type_info(), dict(own.get_attributes())
        if bodies(own) or kind.name in {"ReadValue", "Assign"} or kind.name.startswith("Random"):
            return None
        if kind.name == "Parameter":
            attributes.pop("shape", None)
        content = hashlib.sha256(own.data.tobytes()).hexdigest() if kind.name == "Constant" else ""
        inputs = [(inside[source.get_node().get_name()], source.get_index()) for source in own.input_values()]
        types = [output.get_element_type().to_string() for output in own.outputs()]
        index = body.get_parameters().index(own) if kind.name == "Parameter" else None
        described = sorted((key, str(value)) for key, value in attributes.items())
        inside[own.get_name()] = _hash(kind.name, kind.version_id, described, inputs, types, content, index)
    results = [inside[result.get_name()] for result in body.get_results()]
    return _hash(op.get_type_name(), results, _ports_of_bodies(op, op.get_type_name()))


def _graph_digest(graph: openvino.Model, within: dict[str, list[str]], mapped: MappedWeights, *, shapes: bool) -> str:
    digests: dict[str, str] = {}
    for op in graph.get_ordered_ops():
        name, kind = op.get_name(), op.get_type_info()
        inputs = [(digests[source.get_node().get_name()], source.get_index()) for source in op.input_values()]
        outputs = [
            (
                output.get_element_type().to_string(),
                output.get_partial_shape().to_string() if shapes else "",
                sorted(output.get_names()),
            )
            for output in op.outputs()
        ]
        digests[name] = _hash(
            kind.name,
            kind.version_id,
            op.get_friendly_name(),
            sorted(op.get_attributes().items()),
            inputs,
            outputs,
            _content(op, outputs[0][0], mapped) if kind.name == "Constant" else "",
            within.get(name, ()),
            _ports_of_bodies(op, kind.name),
        )
    ports = [[digests[op.get_name()] for op in ops] for ops in (graph.get_parameters(), graph.get_results())]
    return _hash(ports, sorted(digests.values()))


def _content(op: openvino.Node, element_type: str, mapped: MappedWeights) -> str:
    if element_type == "dynamic":  # OpenVINO's ONNX frontend represents an omitted input so
        return ""
    if element_type == "string":
        return repr(op.get_tensor_view().str_data.tolist())
    data = numpy.ravel(op.data).view(numpy.uint8)
    if data.size <= _SMALL:
        return data.tobytes().hex()
    byte_range = mapped.find(data.ctypes.data, data.size)
    sample = (
        numpy.concatenate([data[:_SAMPLE], data[-_SAMPLE:]]).tobytes()
        if byte_range is None
        else byte_range.ends(_SAMPLE)
    )
    return sample.hex()


def _ports_of_bodies(op: openvino.Node, kind: str) -> list[Any]:
    if kind == "If":
        described = [op.get_input_descriptions(0), op.get_input_descriptions(1)]
        described += [op.get_output_descriptions(0), op.get_output_descriptions(1)]
    elif kind in {"Loop", "TensorIterator"}:
        described = [op.get_input_descriptions(), op.get_output_descriptions()]
    else:
        return []
    special = op.get_special_body_ports() if kind == "Loop" else []
    return [special, [[_fields(port) for port in ports] for ports in described]]


def _fields(port: Any) -> list[Any]:
    values = {name: getattr(port, name) for name in dir(port) if not name.startswith("_")}
    return [type(port).__name__, sorted((name, value) for name, value in values.items() if isinstance(value, int))]


def _plain(value: Any, leave_out: frozenset[str] = frozenset()) -> Any:
    if hasattr(value, "items"):
        return {str(key): _plain(inner) for key, inner in sorted(value.items()) if key not in leave_out}
    return str(value.value) if isinstance(value, openvino.OVAny) else value


def _hash(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()
