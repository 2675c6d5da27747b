"""The pass `select-branch`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.passes import Done, Pass
from graphpass.errors import PreconditionError

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs


@dataclass(frozen=True)
class SelectBranch(Pass[OnnxModel]):
    """Replace each If by one branch, if an input decides it; drop the input.

    Optimum merges a decoder for the first step and one for all others into one file, as the branches of an If, which no
    plugin of OpenVINO compiles (2026.4.1). The branch for all others computes the first step, too, from an empty past.
    Outputs that depend on no input are dropped: a branch only fills them in.

    Before:
        If(use_cache_branch){then: A -> present, else: B -> present}
    After:
        A -> present

    Attributes:
        input: The boolean input that decides.
        value: The value of that input whose branch is kept.

    Raises:
        PreconditionError: GP346, no If of the main graph is decided by the input alone.
    """

    name = "select-branch"
    dialect = "onnx"

    input: str = "use_cache_branch"
    value: bool = True

    def run(self, model: OnnxModel) -> Done:
        rewriter = model.rewriter()
        graph, count = rewriter.surgery.graph, 0
        for node in rewriter.graph.of_op("If"):
            native = rewriter.node(node)
            if native.inputs[0].name == self.input:
                body = native.attrs.pop("then_branch" if self.value else "else_branch")
                graph.nodes.extend(body.nodes)
                for output, made in zip(node.outputs, body.outputs, strict=True):
                    if output.name:
                        rewriter.replace(output, made)
                count += 1
        if not count:
            reason = f"no If of the main graph is decided by input {self.input}"
            raise PreconditionError("GP346", reason, "name the input that decides")
        dropped = _drop_constant_outputs(graph)
        _drop_dead(graph, self.input)
        rewriter.finish()
        return Done({"branches taken": count, "outputs dropped": dropped})


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
    """Drop nodes and inputs that lead to no output, and the input that decided."""
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
