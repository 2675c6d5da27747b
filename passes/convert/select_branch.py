"""The pass `select-branch`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.walk import bodies, captured
from graphpass.engine.passes import Changed, Pass, PassResult
from graphpass.errors import PreconditionError
from graphpass.ir.types import Dialect

if TYPE_CHECKING:
    from collections.abc import Iterable

    import onnx

__all__ = ["SelectBranch"]


@dataclass(frozen=True)
class SelectBranch(Pass[OnnxModel]):
    """Put one branch of each If that an input decides in its place, and take the input out.

    Optimum merges a decoder for the first step and one for all others into one file, as the branches of an If, of which
    OpenVINO's plugins compile none (2026.4.1). The branch for all others computes the first step, too, from an
    empty past. Outputs that a branch only fills in go: those that depend on no input.

    Before:
        If(use_cache_branch){then: A -> present, else: B -> present}
    After:
        A -> present

    Attributes:
        input: The boolean input that decides.
        value: Which branch: that for ``true`` or that for ``false``.

    Raises:
        PreconditionError: GP346, no If of the main graph is decided by the input alone.
    """

    name: ClassVar[str] = "select-branch"
    dialect: ClassVar[Dialect | None] = "onnx"

    input: str = "use_cache_branch"
    value: bool = True

    def run(self, model: OnnxModel) -> PassResult:
        """See `Pass.run`."""
        graph = model.proto.graph
        nodes: list[onnx.NodeProto] = []
        count = 0
        for node in graph.node:
            if node.op_type == "If" and node.input[0] == self.input:
                nodes += _taken(graph, bodies(node)["then_branch" if self.value else "else_branch"], node.output)
                count += 1
            else:
                nodes.append(node)
        if not count:
            raise PreconditionError(
                "GP346", f"no If of the main graph is decided by input {self.input}", "name the input that decides"
            )
        del graph.node[:]
        graph.node.extend(nodes)
        dropped = _drop_filled_in(graph)
        _drop_unread(graph, self.input)
        return Changed(model, {"branches taken": count, "outputs dropped": dropped})


def _taken(graph: onnx.GraphProto, body: onnx.GraphProto, outputs: Iterable[str]) -> list[onnx.NodeProto]:
    """The nodes of a body, and those that call its results what ``graph`` calls them; ``graph`` gets its tensors."""
    from onnx import helper

    graph.initializer.extend(body.initializer)
    graph.sparse_initializer.extend(body.sparse_initializer)
    known = {info.name for info in graph.value_info}
    graph.value_info.extend(info for info in body.value_info if info.name not in known)
    renamed = [(info.name, output) for info, output in zip(body.output, outputs, strict=True) if info.name != output]
    named = [helper.make_node("Identity", [made], [output], f"{output}/taken") for made, output in renamed if output]
    return [*body.node, *named]


def _drop_filled_in(graph: onnx.GraphProto) -> int:
    """Take out the outputs that depend on no input, and say how many there were."""
    moving = {info.name for info in graph.input} - {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        if moving & {*node.input, *captured(node)}:
            moving.update(node.output)
    fixed = [info for info in graph.output if info.name not in moving]
    for info in fixed:
        graph.output.remove(info)
    return len(fixed)


def _drop_unread(graph: onnx.GraphProto, decider: str) -> None:
    """Take out what leads to no output, inputs too, and the input that decided."""
    needed = {info.name for info in graph.output}
    kept = []
    for node in reversed(graph.node):
        if needed & set(node.output):
            needed.update(node.input)
            needed.update(captured(node))
            kept.append(node)
    del graph.node[:]
    graph.node.extend(reversed(kept))
    for tensor in [tensor for tensor in graph.initializer if tensor.name not in needed]:
        graph.initializer.remove(tensor)
    for info in [info for info in graph.input if info.name not in needed - {decider}]:
        graph.input.remove(info)
