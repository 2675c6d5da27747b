"""Unroll loops."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_graphsurgeon as gs

from graphpass.dialects.onnx.rewriter import OnnxRewriter
from graphpass.ir.graph import Node
from graphpass.ir.writer import Handle


def unroll(rewriter: OnnxRewriter, node: Node, count: int) -> bool:
    """Replace a Loop or Scan by a sequence of its iterations.

    Args:
        rewriter: The model's rewriter.
        node: The loop.
        count: Number of iterations, at least 1.

    Returns:
        Whether the loop was replaced. A loop that an iteration may end, or whose body has loops or branches, is kept.
    """
    form = _loop(rewriter, node) if node.op == "Loop" else _scan(rewriter, node)
    is_nested = any(isinstance(value, gs.Graph) for inner in form.body.nodes for value in inner.attrs.values())
    if is_nested or (node.op == "Loop" and not _goes_on(form.body)):
        return False
    for output, made in zip(node.outputs, _iterations(rewriter, node, form, count), strict=True):
        if output.name:
            rewriter.replace(output, made)
    return True


@dataclass(frozen=True, slots=True)
class _Form:
    """The parts of a loop.

    Attributes:
        body: The body.
        carried: Initial values of the loop-carried tensors.
        sliced: Tensors that iterations slice, each with the axis and whether slicing starts at the end.
        stacked: For each stacked output, the axis and whether stacking starts at the end.
    """

    body: gs.Graph
    carried: tuple[gs.Tensor, ...]
    sliced: tuple[tuple[gs.Tensor, int, bool], ...]
    stacked: tuple[tuple[int, bool], ...]


def _loop(rewriter: OnnxRewriter, node: Node) -> _Form:
    native = rewriter.node(node)
    body, carried = native.attrs["body"], tuple(native.inputs[2:])
    return _Form(body, carried, (), ((0, False),) * (len(body.outputs) - 1 - len(carried)))


def _scan(rewriter: OnnxRewriter, node: Node) -> _Form:
    native = rewriter.node(node)
    body, count = native.attrs["body"], int(native.attrs["num_scan_inputs"])
    first = len(native.inputs) - count

    def listed(kind: str, number: int) -> list[tuple[int, bool]]:
        axes = native.attrs.get(f"scan_{kind}_axes") or [0] * number
        directions = native.attrs.get(f"scan_{kind}_directions") or [0] * number
        return [(int(axis), bool(direction)) for axis, direction in zip(axes, directions, strict=True)]

    sliced = zip(native.inputs[first:], listed("input", count), strict=True)
    stacked = tuple(listed("output", len(body.outputs) - first))
    return _Form(body, tuple(native.inputs[:first]), tuple((tensor, *order) for tensor, order in sliced), stacked)


def _goes_on(body: gs.Graph) -> bool:
    """Return whether the condition of a Loop is true after each iteration."""
    condition = body.outputs[0]
    while condition.inputs and condition.inputs[0].op == "Identity":
        condition = condition.inputs[0].inputs[0]
    if condition.inputs and condition.inputs[0].op == "Constant":
        condition = condition.inputs[0].attrs["value"]
    return condition is body.inputs[1] or (isinstance(condition, gs.Constant) and bool(condition.values.all()))


def _iterations(rewriter: OnnxRewriter, node: Node, form: _Form, count: int) -> list[Handle]:
    """Write the iterations.

    Returns:
        The outputs of the loop: carried values, then stacked ones.
    """
    write = rewriter.under(node.name)
    carried, stacks = list(form.carried), [list[Handle]() for _ in form.stacked]
    is_loop = node.op == "Loop"
    for number in range(count):
        inputs = [write.number(number, "i64", "number"), write.number(True, "boolean", "goes_on")] if is_loop else []
        inputs += carried
        for tensor, axis, is_back in form.sliced:
            index = write.number(count - 1 - number if is_back else number, "i64", "place")
            inputs.append(write.op("Gather", tensor, index, axis=axis, label="slice"))
        results = _copied(rewriter, form.body, f"{node.name}/{number}", inputs)[is_loop:]
        carried = results[: len(carried)]
        for stack, result in zip(stacks, results[len(carried) :], strict=True):
            stack.append(result)
    for stack, (axis, is_back) in zip(stacks, form.stacked, strict=True):
        parts = [write.op("Unsqueeze", part, axes=[axis], label="part") for part in (stack[::-1] if is_back else stack)]
        carried.append(write.op("Concat", *parts, axis=axis, label="stacked") if len(parts) > 1 else parts[0])
    return carried


def _copied(rewriter: OnnxRewriter, body: gs.Graph, prefix: str, inputs: list[Handle]) -> list[Handle]:
    """Copy the nodes of a body.

    Returns:
        The copies of its outputs.
    """
    copies: dict[int, gs.Tensor] = {id(port): tensor for port, tensor in zip(body.inputs, inputs, strict=True)}
    for node in body.nodes:
        name = f"{prefix}/{(node.name or node.op).lstrip('/')}"
        sources = [copies.get(id(tensor), tensor) for tensor in node.inputs]
        made = rewriter.add_native(node.op, sources, name, len(node.outputs), dict(node.attrs), node.domain)
        copies |= {id(tensor): copy for tensor, copy in zip(node.outputs, made, strict=True)}
    return [copies.get(id(tensor), tensor) for tensor in body.outputs]
