"""Express OpenVINO operators as arguments of `OpenVINORewriter.make`."""

from __future__ import annotations

import functools
from typing import Any

from openvino import opset13

from graphpass.dialects.openvino.rewriter import CONSTANT_INPUTS, DEFAULTS, NATIVE_NAMES
from graphpass.ir.graph import Graph, Node, Spelling, positive_axis

_NEUTRAL_NAMES = {native: neutral for neutral, native in NATIVE_NAMES.items()}


def spelled(graph: Graph, node: Node) -> Spelling:
    """Return the spelling of an operator; an opset other than `make`'s is a prefix.

    Args:
        graph: Graph of the operator, from which axes and other constant inputs are read.
        node: The operator.
    """
    kind, inputs = node.op, list(node.inputs)
    if kind == "Parameter":
        names = node.attributes["names"]
        return Spelling(kind, (), {} if names == (node.name,) else {"names": names})
    if kind != node.native.get_type_name() or kind in {"Constant", "Result", "ReadValue", "Assign"}:
        return Spelling(kind, node.inputs, node.attributes)
    version = node.native.get_type_info().version_id
    if version != _usual_opset(kind):
        return Spelling(f"{version}.{kind}", node.inputs, node.native.get_attributes())
    usual = DEFAULTS.get(kind, {})
    own = {name: value for name, value in node.native.get_attributes().items() if not _is(value, usual.get(name))}
    attributes: dict[str, Any] = {_NEUTRAL_NAMES.get(name, name): value for name, value in own.items()}
    if "axis" in attributes and "axis" in node.attributes:
        attributes["axis"] = node.attributes["axis"]
    port, name, single = CONSTANT_INPUTS.get(kind, (0, "", False))
    constant = graph.constant(inputs[port]) if name and port < len(inputs) else None
    if constant is not None:
        rank = node.source().rank
        axes = node.attributes.get(name, [positive_axis(axis, rank) for axis in constant.reshape(-1).tolist()])
        attributes = {name: (axes if isinstance(axes, int) else axes[0]) if single else tuple(axes)} | attributes
        del inputs[port]
    if (
        kind == "Slice"
        and name in attributes
        and (steps := graph.constant(inputs[3])) is not None
        and (steps == 1).all()
    ):
        del inputs[3]
    return Spelling(kind, tuple(inputs), attributes)


def _is(value: Any, usual: Any) -> bool:
    return bool(str(value).lower() == str(usual).lower())


@functools.cache
def _usual_opset(kind: str) -> str | None:
    """Return the opset that defines an operator of opset 13."""
    return _opsets().get(kind.lower())


@functools.cache
def _opsets() -> dict[str, str]:
    functions = {name.replace("_", ""): getattr(opset13, name) for name in dir(opset13)}
    modules = {name: getattr(function, "__module__", "") for name, function in functions.items() if callable(function)}
    return {name: module.split(".")[1] for name, module in modules.items() if module.startswith("openvino.opset")}
