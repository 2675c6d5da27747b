"""Convert a model to a later opset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import onnx.version_converter

from graphpass.dialects.onnx.tensors import SMALL, graphs, is_external, nbytes, rebuilt, tensors
from graphpass.dialects.onnx.walk import ONNX_DOMAINS, inferred, opset_of
from graphpass.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphpass.dialects.onnx.tensors import Holder

#: Domain of operators that are not in ONNX, while the converter runs: it skips other domains.
_APART = "graphpass.apart"

#: Location of a weight while the converter runs, which copies tensors but not external data.
_LOCATION = "graphpass:"


def upgraded(proto: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """Return a copy of a model in a later opset.

    The rules are those of ``onnx.version_converter``. Weights, local functions, declared shapes and the metadata of
    nodes, which it changes or omits, are restored.

    Args:
        proto: The model, which is not modified.
        opset: The version of ONNX's operators.

    Raises:
        UnsupportedError: GP352, the converter fails, or the model has sparse initializers, which it does not support.
    """
    if any(isinstance(graph, onnx.GraphProto) and graph.sparse_initializer for graph in graphs(proto)):
        raise UnsupportedError("GP352", "sparse initializers have no conversion to other opsets")
    weights: list[onnx.TensorProto] = []

    def stub(tensor: onnx.TensorProto) -> onnx.TensorProto | None:
        if is_external(tensor) or nbytes(tensor) <= SMALL:
            return None
        weights.append(onnx.TensorProto())
        weights[-1].CopyFrom(tensor)
        empty = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        empty.data_location = onnx.TensorProto.EXTERNAL
        empty.external_data.add(key="location", value=f"{_LOCATION}{len(weights) - 1}")
        return empty

    light = rebuilt(proto, stub)
    moved = _move_apart(light)
    # Before opset 13, Softmax joins the axes from its own on. The converter keeps one operator if its axis is the last,
    # which requires the rank.
    _declare(light.graph, inferred(proto).graph)
    try:
        result = onnx.version_converter.convert_version(light, opset)
    except (RuntimeError, onnx.version_converter.ConvertError) as error:
        reason = " ".join(str(error).split())
        raise UnsupportedError("GP352", f"the model cannot be converted to opset {opset}: {reason}") from error
    for tensor in tensors(result):
        location = tensor.external_data[0].value if tensor.external_data else ""
        if location.startswith(_LOCATION):
            tensor.CopyFrom(weights[int(location.removeprefix(_LOCATION))])
    _restore(proto, result)
    for node in _nodes(result):
        if node.domain == _APART:
            node.domain = moved[node.op_type]
    _rename(result, {name for node in _nodes(proto) for name in node.output}, opset)
    return result


def _move_apart(proto: onnx.ModelProto) -> dict[str, str]:
    """Move operators that ONNX does not define to a domain of their own.

    Returns:
        Their domains, by operator.
    """
    opset, moved = opset_of(proto), {}
    for node in _nodes(proto):
        if node.domain in ONNX_DOMAINS and not onnx.defs.has(node.op_type, opset, ""):
            moved[node.op_type], node.domain = node.domain, _APART
    proto.opset_import.extend([onnx.helper.make_opsetid(_APART, 1)] if moved else [])
    return moved


def _declare(graph: onnx.GraphProto, known: onnx.GraphProto) -> None:
    """Declare inferred shapes of values of the main graph."""
    names = {name for node in graph.node for name in node.output} - {info.name for info in graph.value_info}
    names -= {info.name for info in graph.output}
    graph.value_info.extend(info for info in known.value_info if info.name in names)


def _restore(original: onnx.ModelProto, result: onnx.ModelProto) -> None:
    """Restore what the converter changes although it does not depend on the opset."""
    for before, after in zip(_bodies(original), _bodies(result), strict=True):
        for field in ("input", "output", "value_info", "metadata_props"):
            del getattr(after, field)[:]
            getattr(after, field).extend(getattr(before, field))
        known = {node.output[0]: node for node in before.node if node.output}
        for node in after.node:
            if node.output and (same := known.get(node.output[0])) is not None:
                node.metadata_props.extend(same.metadata_props)
    kept = [entry for entry in result.opset_import if entry.domain != _APART]
    del result.opset_import[:], result.functions[:]
    result.opset_import.extend(kept)
    result.functions.extend(original.functions)


def _rename(result: onnx.ModelProto, known: set[str], opset: int) -> None:
    """Name new values and their nodes in order: the converter's names may repeat later.

    Raises:
        UnsupportedError: GP352, a new value has the name of another one.
    """
    count = 0
    for graph in _bodies(result):
        made = [name for node in graph.node for name in node.output if name]
        if len(made) > len(set(made)):
            raise UnsupportedError("GP352", "values made by an earlier conversion have the names of new ones")
        new = {name: f"opset_{opset}/{count + place}" for place, name in enumerate(made) if name not in known}
        count += len(made)
        names = set(new.values())
        for node in graph.node:
            node.input[:] = [new.get(name, name) for name in node.input]
            node.output[:] = [new.get(name, name) for name in node.output]
            node.name = node.name or next((name for name in node.output if name in names), "")


def _bodies(proto: onnx.ModelProto) -> Iterator[Holder]:
    """Yield the main graph and its bodies, in an order independent of attributes' positions."""
    pending: list[onnx.GraphProto] = [proto.graph]
    while pending:
        graph = pending.pop()
        yield graph
        for node in graph.node:
            for attribute in sorted(node.attribute, key=lambda attribute: attribute.name):
                pending.extend([attribute.g] if attribute.HasField("g") else attribute.graphs)


def _nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    for graph in _bodies(proto):
        yield from graph.node
