"""The pass `densify-experts`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from graphpass.analysis.symbolic.folding import fold_scalar, is_zero
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Graph, Node, Use, Value
from graphpass.ir.operators import CASTS, LAYOUT, SLICES, SPLITS
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.values import fixed_size

#: Operators whose rows depend only on the same rows of their operands, and operators on sizes.
_BY_ROWS = LAYOUT | SPLITS | {
    "Add", "Clamp", "Concat", "Divide", "Elu", "Gather", "Gelu", "HSwish", "Maximum", "Minimum", "Multiply", "Relu",
    "ShapeOf", "Sigmoid", "SoftPlus", "Subtract", "Swish", "Tanh",
}  # fmt: skip


@dataclass(frozen=True)
class DensifyExperts(Pass[OpenVINOModel]):
    """Compute all tokens in each expert, and set results of other tokens to 0.

    Exporters trace experts as PyTorch executes them: each expert gathers the tokens routed to it, so that shapes depend
    on values. Runtimes with static shapes, such as NPUW, refuse such models. After this pass each expert computes all
    tokens, and results of tokens that are not routed to it are set to 0 before the sum. The cost of products increases
    by the factor ``experts / k``.

    `batch-experts` is faster, and requires experts in a known form. This pass only requires that rows are gathered and
    added at the same indices.

    Shapes:
        routing ``[experts, slots, tokens]`` or ``[experts, tokens, slots]``; rows ``[tokens, hidden]``

    Before:
        NonZero(tokens of the expert) -> Gather(rows) -> expert -> ScatterElementsUpdate
    After:
        each token once -> Gather(rows) -> expert -> Select(routed to it, ., 0) -> ScatterElementsUpdate
    """

    name = "densify-experts"
    dialect = "openvino"

    def run(self, model: OpenVINOModel) -> Done:
        rewriter = model.rewriter()
        graph = rewriter.graph
        experts = [routed for node in graph.of_op("NonZero") if (routed := _routed(graph, node)) is not None]
        for expert in experts:
            _compute_all_tokens(rewriter, expert)
        rewriter.finish()
        return Done({"experts": len(experts)})


@dataclass(frozen=True)
class _Expert:
    """An expert that gathers its tokens.

    Attributes:
        chosen: The NonZero that finds its tokens.
        tokens: The axis of tokens in the NonZero's input.
        scatters: The operators that add the expert's results to a sum.
    """

    chosen: Node
    tokens: int
    scatters: tuple[Node, ...]


def _routed(graph: Graph, chosen: Node) -> _Expert | None:
    """Return the expert with tokens from NonZero ``chosen``, if a sum adds its results."""
    mask = chosen.source()
    if mask.shape is None or len(mask.shape) != 2 or not _is_one_hot(graph, mask):
        return None
    fixed = [isinstance(size, int) for size in mask.shape]
    if sum(fixed) != 1:
        return None
    tokens = fixed.index(False)
    scatters: dict[int, Node] = {}

    def through(use: Use) -> tuple[Value, ...]:
        return () if _is_scatter(use) else use.node.outputs

    for use in graph.forward(chosen.outputs, through):
        if _is_scatter(use):
            scatters[use.node.index] = use.node
        elif use.node.op not in _BY_ROWS and not (use.node.op == "MatMul" and use.port == 0):
            return None
    nodes = tuple(scatters.values())
    return (
        _Expert(chosen, tokens, nodes)
        if nodes and all(_adds_up(graph, node, chosen, tokens) for node in nodes)
        else None
    )


def _is_scatter(use: Use) -> bool:
    return use.node.op == "ScatterElementsUpdate" and use.port in {1, 2}


def _is_one_hot(graph: Graph, mask: Value) -> bool:
    """Return whether ``mask`` is one expert's part of a OneHot of distinct experts."""
    marks = graph.look_through(mask, LAYOUT | {"Gather"})
    chosen = graph.look_through(marks, LAYOUT | {"Gather", "OneHot"})
    joined = graph.producer(chosen)
    parts = joined.sources if joined.op == "Concat" else (chosen,)
    are_chosen = all(graph.producer(part).op == "TopK" and part.port == 1 for part in parts)
    others = ((part, first) for place, part in enumerate(parts) for first in parts[:place])
    return marks.node != chosen.node and are_chosen and all(_is_excluded(graph, *pair) for pair in others)


def _is_excluded(graph: Graph, chosen: Value, first: Value) -> bool:
    """Return whether the TopK of ``chosen`` reads -inf as scores of ``first`` (Phi-3.5 MoE)."""
    node = graph.producer(graph.producer(chosen).source())
    while node.op == "ScatterElementsUpdate":
        lowest = fold_scalar(graph, graph.look_through(node.source(2), LAYOUT | SLICES))
        if lowest == -math.inf and graph.look_through(node.source(1), CASTS) == first:
            return True
        node = graph.producer(node.source())
    return False


def _adds_up(graph: Graph, scatter: Node, chosen: Node, tokens: int) -> bool:
    """Return whether ``scatter`` adds rows at the indices of ``chosen``.

    Rows of 0 then have no effect.
    """
    if fold_scalar(graph, scatter.inputs[3]) != 0:
        return False
    reduction = scatter.attributes.get("reduction", "none")
    if reduction != "sum" and not (reduction == "none" and is_zero(graph, scatter.source())):
        return False
    index = graph.look_through(scatter.source(1), LAYOUT)
    split = graph.producer(index)
    is_place = split.op in SPLITS and index.port == tokens
    return is_place and graph.look_through(split.source(), {"Transpose"}).node == chosen.index


def _compute_all_tokens(rewriter: Rewriter, expert: _Expert) -> None:
    chosen, source = expert.chosen, expert.chosen.source()
    name, slots = f"{chosen.name}/all", 1 - expert.tokens
    write = rewriter.under(name)
    mask = write.op("Convert", source, to="i64")
    count = fixed_size(source, slots)
    assert count is not None
    indices = write.op("Unsqueeze", range(count), axes=[expert.tokens])
    slot = write.op("ReduceSum", write.op("Multiply", mask, indices), axes=[slots], keep=False)
    token = write.op("Range", 0, write.op("Gather", write.op("ShapeOf", mask), expert.tokens, axis=0), 1)
    rows = [write.op("Unsqueeze", row, axes=[0]) for row in ((slot, token) if slots == 0 else (token, slot))]
    result = write.op("Concat", *rows, axis=0, name=name)
    if (wanted := chosen.outputs[0].element_type) != "i64":
        result = write.op("Convert", result, to=wanted)
    rewriter.redirect_uses(chosen.outputs[0], result)
    own = write.op("Convert", write.op("ReduceMax", mask, axes=[slots], keep=False), to="boolean", label="is_own")
    column = write.op("Unsqueeze", own, axes=[1])
    for scatter in expert.scatters:
        updates = scatter.source(2)
        nothing = write.number(0.0, updates.element_type)
        rewriter.redirect(scatter, 2, write.op("Select", column, updates, nothing, name=f"{scatter.name}/own"))
