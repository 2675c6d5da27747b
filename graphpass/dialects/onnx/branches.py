"""Replace Ifs by one of their branches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.ir.rewriter import claim_name

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

    from graphpass.dialects.onnx.rewriter import OnnxRewriter
    from graphpass.ir.graph import Node


def take_branches(model: OnnxModel, decider: str, value: bool) -> tuple[int, int]:
    """Replace each If whose condition is the input ``decider`` by its branch for ``value``.

    Ifs in bodies are kept.

    Args:
        model: The model, which is edited.
        decider: Name of the input; it is removed if an If was replaced.
        value: Value of the input: ``True`` selects ``then_branch``, ``False`` selects ``else_branch``.

    Returns:
        The number of replaced Ifs, and the number of removed outputs. Outputs that depend on no input are removed.
    """
    rewriter = model.rewriter()
    graph = rewriter.surgery.graph
    decided = [node for node in rewriter.graph.of_op("If") if rewriter.node(node).inputs[0].name == decider]
    inline_branches(rewriter, ((node, value) for node in decided))
    dropped = _drop_constant_outputs(graph) if decided else 0
    if decided:
        _drop_dead(graph, decider)
        rewriter.finish()
    return len(decided), dropped


def with_branch(model: OnnxModel, decider: str, value: bool) -> OnnxModel:
    """Return a copy of a model with the branches for one value of an input.

    Args:
        model: The model.
        decider: Name of the boolean input.
        value: Value of the input, see `take_branches`.
    """
    taken = model.clone()
    take_branches(taken, decider, value)
    taken.mark_edited()
    return taken


def inline_branches(rewriter: OnnxRewriter, decided: Iterable[tuple[Node, bool]]) -> None:
    """Replace Ifs of the main graph by one of their branches.

    Args:
        rewriter: The rewriter of the model.
        decided: Each If, and its condition: ``True`` selects ``then_branch``, ``False`` selects ``else_branch``.
    """
    from graphpass.dialects.onnx.graphsurgeon import inner_graphs

    graph = rewriter.surgery.graph
    taken = [
        (node, rewriter.node(node).attrs.pop("then_branch" if value else "else_branch")) for node, value in decided
    ]
    for node, _ in taken:
        rewriter.node(node).attrs.clear()
    # The bodies that are kept have names that the main graph must not use.
    kept = inner_graphs([*graph.nodes, *(each for _, body in taken for each in body.nodes)])
    scopes = [*(node for body in kept for node in body.nodes), *graph.nodes]
    known = {tensor.name: tensor for each in scopes for tensor in (*each.inputs, *each.outputs)}
    names, operators = {*known}, {each.name for each in graph.nodes}
    for node, body in taken:
        for each in body.nodes:
            each.name = claim_name(operators, each.name) if each.name else ""
            for tensor in (*each.inputs, *each.outputs):
                # Bodies of several Ifs may use the same names.
                if tensor.name and known.setdefault(tensor.name, tensor) is not tensor:
                    tensor.name = claim_name(names, tensor.name)
                    known[tensor.name] = tensor
                names.add(tensor.name)
        graph.nodes.extend(body.nodes)
        for output, made in zip(node.outputs, body.outputs, strict=True):
            if output.name:
                rewriter.replace(output, made)


def deciders(model: OnnxModel) -> list[str]:
    """Return the boolean inputs that only conditions of Ifs read."""
    graph = model.graph
    inputs = {name: value for name, value in graph.parameters.items() if value.element_type == "boolean"}
    return [name for name, value in inputs.items() if {use.node.op for use in graph.uses(value)} == {"If"}]


def _drop_constant_outputs(graph: gs.Graph) -> int:
    import onnx_graphsurgeon as gs

    from graphpass.dialects.onnx.graphsurgeon import reads, sorted_nodes

    moving = {id(tensor) for tensor in graph.inputs if not isinstance(tensor, gs.Constant)}
    for node in sorted_nodes(graph.nodes):
        if any(id(tensor) in moving for tensor in reads(node)):
            moving |= {id(tensor) for tensor in node.outputs}
    before = len(graph.outputs)
    graph.outputs = [tensor for tensor in graph.outputs if id(tensor) in moving]
    return before - len(graph.outputs)


def _drop_dead(graph: gs.Graph, decider: str) -> None:
    """Remove nodes and inputs upstream of no output, and the input ``decider``."""
    from graphpass.dialects.onnx.graphsurgeon import reads

    needed: set[int] = set()
    pending = list(graph.outputs)
    while pending:
        tensor = pending.pop()
        if id(tensor) not in needed:
            needed.add(id(tensor))
            pending += [read for node in tensor.inputs for read in reads(node)]
    graph.nodes = [node for node in graph.nodes if any(id(tensor) in needed for tensor in node.outputs)]
    graph.inputs = [tensor for tensor in graph.inputs if id(tensor) in needed and tensor.name != decider]
