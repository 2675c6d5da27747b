"""Express ONNX operators as arguments of `NodeMaker.make`: the inverse of `operators.translated`."""

from __future__ import annotations

from typing import Any

import onnx
from onnx import numpy_helper

from graphpass.dialects.onnx.operators import AXES_INPUTS, SWISH
from graphpass.dialects.onnx.tensors import element_type
from graphpass.dialects.onnx.walk import ONNX_DOMAINS
from graphpass.ir.graph import Graph, Node, Spelling, Value, positive_axis
from graphpass.ir.operators import REDUCTIONS

#: Operators whose axis counts from 0 in the neutral form, and is stated even if it is the default.
_WITH_AXIS = frozenset(
    {"Concat", "Gather", "GatherElements", "LogSoftmax", "OneHot", "ScatterElementsUpdate", "Softmax"}
)
_WITH_AXIS |= {"TopK", "VariadicSplit"}


def spelled(graph: Graph, node: Node, *, opset: int) -> Spelling:
    """Return the spelling of an operator.

    An operator that `make` cannot express is native, with the prefix ``onnx.``.

    Args:
        graph: The view that contains the node.
        node: The operator.
        opset: Version of the default ONNX operator set that the model imports.
    """
    native = node.native
    if not isinstance(native, onnx.NodeProto) or node.op in {"Carried", "Final", "Iteration", "Sliced", "Stacked"}:
        return Spelling(node.op, node.inputs, node.attributes)
    attributes = {attribute.name: _plain(onnx.helper.get_attribute_value(attribute)) for attribute in native.attribute}
    if native.domain not in ONNX_DOMAINS:
        if native.op_type == "QuickGelu" and attributes == {"alpha": 1.0} and opset < SWISH:
            return Spelling("Swish", node.inputs, {})
        return Spelling(f"{native.domain}.{native.op_type}", node.inputs, attributes)
    spelling = _neutral(graph, node, attributes, opset)
    return spelling or Spelling(f"onnx.{native.op_type}", node.inputs, attributes)


def _neutral(graph: Graph, node: Node, attributes: dict[str, Any], opset: int) -> Spelling | None:
    op, inputs = node.op, node.inputs
    if op in _WITH_AXIS:
        attributes = {"axis": node.attributes["axis"]} | {
            name: value for name, value in attributes.items() if name != "axis"
        }
    if op in AXES_INPUTS:
        return _with_axes(graph, node, attributes, opset)
    if op == "Convert":
        return Spelling(op, inputs, attributes | {"to": element_type(attributes["to"])})
    if op == "Transpose":
        return Spelling(op, inputs, {"order": node.attributes["order"]}) if "order" in node.attributes else None
    if op == "Reshape":
        return Spelling(op, inputs, {"zero_keeps": False} if attributes.get("allowzero") else {})
    if op == "Slice":
        return _slice(graph, node)
    # `make` can express only one form of these operators.
    is_odd = op == "Pad" or (op == "VariadicSplit" and len(inputs) < 2) or "reduction" in attributes
    return None if is_odd else Spelling(op, inputs, attributes)


def _with_axes(graph: Graph, node: Node, attributes: dict[str, Any], opset: int) -> Spelling | None:
    single = node.op == "CumSum"
    keep = attributes.pop("keepdims", 1)
    axes = attributes.pop("axes", None)
    if opset >= AXES_INPUTS[node.op]:
        constant = graph.constant(node.input(1))
        axes = None if constant is None else constant.reshape(-1).tolist()
    if axes is None or attributes.get("noop_with_empty_axes"):
        return None
    axes = node.attributes.get("axes", [positive_axis(axis, node.source().rank) for axis in axes])
    named: dict[str, Any] = {"axis": axes[0]} if single else {"axes": tuple(axes)}
    if node.op in REDUCTIONS and keep:
        named["keep"] = True
    return Spelling(node.op, node.inputs[:1], named | attributes)


def _slice(graph: Graph, node: Node) -> Spelling | None:
    if len(node.inputs) < 4 or "axes" not in node.attributes or node.native.attribute:
        return None
    bounds: tuple[Value | None, ...] = node.inputs[:3]
    steps = graph.constant(node.input(4))
    if node.input(4) is not None and (steps is None or (steps != 1).any()):
        bounds = (*bounds, node.input(4))
    return Spelling(node.op, bounds, {"axes": node.attributes["axes"]})


def _plain(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, onnx.GraphProto):
        return f"graph of {len(value.node)} nodes"
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
