"""Reject ONNX models that become too large when their functions are expanded."""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx

from graphpass.errors import ReadError

#: Maximum number of nodes with all functions expanded, as in shape inference and runtimes.
_MOST_NODES = 1_000_000

#: Maximum version of an operator set that a model may import; onnx 1.23 is at 28.
_NEWEST_OPSET = 10_000

#: Maximum nesting of bodies. OpenVINO 2026.4.1's compile time of Ifs doubles per level: 0.3 s at 12, 80 s at 20.
_DEEPEST = 16

_EXPORT_AGAIN = "export the model again"


def check_limits(proto: onnx.ModelProto, path: Path) -> None:
    """Check versions of operator sets, nesting of bodies, and the size of functions.

    Args:
        proto: The model, before its functions are expanded.
        path: The model's file, named in errors.

    Raises:
        ReadError: GP119, a version is out of range, bodies are nested too deep, a function calls itself, or the
            expanded functions have too many nodes.
    """
    for entry in proto.opset_import:
        if not 0 <= entry.version <= _NEWEST_OPSET:
            domain = entry.domain or "ai.onnx"
            reason = f"{path} imports version {entry.version} of the operators of {domain!r}, expected at most"
            raise ReadError("GP119", f"{reason} {_NEWEST_OPSET}", _EXPORT_AGAIN)
    if any(depth > _DEEPEST for depth, _ in _nodes(proto.graph.node)):
        raise ReadError("GP119", f"{path} nests bodies of nodes deeper than {_DEEPEST}", _EXPORT_AGAIN)
    if proto.functions:
        _check_functions(proto, path)


def _check_functions(proto: onnx.ModelProto, path: Path) -> None:
    functions = {
        (function.domain, function.name): [node for _, node in _nodes(function.node)] for function in proto.functions
    }
    calls = {key: [_called(node) for node in nodes if _called(node) in functions] for key, nodes in functions.items()}
    try:
        order = list(graphlib.TopologicalSorter(calls).static_order())
    except graphlib.CycleError as error:
        name = error.args[1][0][1]
        raise ReadError("GP119", f"{path}: the function {name!r} calls itself", _EXPORT_AGAIN) from error
    sizes: dict[tuple[str, str], int] = {}
    for key in order:
        sizes[key] = len(functions[key]) + sum(sizes[call] for call in calls[key])
    if (size := sum(sizes.get(_called(node), 1) for _, node in _nodes(proto.graph.node))) > _MOST_NODES:
        reason = f"{path} has {size} nodes once its functions are expanded, expected at most {_MOST_NODES}"
        raise ReadError("GP119", reason, _EXPORT_AGAIN)


def _called(node: onnx.NodeProto) -> tuple[str, str]:
    return node.domain, node.op_type


def _nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[tuple[int, onnx.NodeProto]]:
    """Yield nodes with their depth of nesting, bodies included."""
    pending = [(0, nodes)]
    while pending:
        depth, level = pending.pop()
        for node in level:
            yield depth, node
            for attribute in node.attribute:
                pending.extend((depth + 1, graph.node) for graph in attribute.graphs)
                if attribute.HasField("g"):
                    pending.append((depth + 1, attribute.g.node))
