"""The pass `drop-row-guards`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphpass.analysis.attention.find import find_attention
from graphpass.analysis.attention.types import OPERATORS, Attention
from graphpass.analysis.pattern import Match, look_through, op, var
from graphpass.analysis.symbolic.folding import fold_scalar
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.model import Model
from graphpass.ir.operators import CASTS, ELEMENTWISE, MOVES
from graphpass.ir.types import Dimension
from graphpass.ir.values import MASKED

#: Exports in f16 round the counted keys to f16.
_COUNT = look_through(op.ReduceSum(var("counted"), ..., name="sum"), CASTS)

#: Replaces results of queries that attend to less than one key. Optimizers may move layout operators before it.
GUARD = op.Select(look_through(op.Less(_COUNT, var("least"), name="hidden")), var("otherwise"), var("result"))


def _is_lowest(graph: Graph, value: Value) -> str | None:
    lowest = fold_scalar(graph, value)
    return None if lowest is not None and lowest <= MASKED else f"{value.name} is above {MASKED:g}"


#: Whether an added mask keeps a key.
SHOWN = op.Greater(var("mask"), var().where(_is_lowest))


@dataclass(frozen=True)
class DropRowGuards(Pass[Model]):
    """Drop guards that set results of queries without keys to 0.

    Only queries at padding before the first token attend to no key, and results of tokens do not depend on them. The
    guard also reads the mask, which paged attention removes.

    Before:
        Select(ReduceSum(mask) < 1, 0, attention)
    After:
        attention
    """

    name: ClassVar[str] = "drop-row-guards"

    def run(self, model: Model) -> Done:
        graph, rewriter, dropped = model.graph, model.rewriter(), 0
        attention = {block.output: block for block in model.analysis(find_attention)}
        for match in GUARD.find(graph):
            block = attention.get(graph.look_through(match["result"], MOVES))
            is_guard = block is not None and _is_for_none(graph, match) and _has_its_rows(match, block.output)
            if block is not None and is_guard and _hides(graph, match["counted"], _masks(block)):
                rewriter.replace(match.node.outputs[0], rewriter.handle(match["result"]))
                dropped += 1
        rewriter.finish()
        return Done({"guards dropped": dropped} if dropped else {})


def _is_for_none(graph: Graph, match: Match) -> bool:
    """Return whether zeros replace rows whose mask is false for all keys."""
    count = match.nodes["sum"]
    along_keys = count.attributes.get("axes") == ((count.source().rank or 0) - 1,)
    return along_keys and fold_scalar(graph, match["least"]) == 1 and fold_scalar(graph, match["otherwise"]) == 0


def _has_its_rows(match: Match, output: Value) -> bool:
    """Return whether the condition has the rows of the result, by their symbolic dimensions."""
    condition = match.nodes["hidden"].outputs[0]
    if match.node.source(0) == condition and match["result"] == output:
        return True
    laid_out = _rows(match.node.source(0), match["result"])
    return laid_out is not None and laid_out == _rows(condition, output)


def _rows(condition: Value, result: Value) -> frozenset[Dimension] | None:
    """Return symbolic dimensions of a condition; ``None`` if those of the result differ."""
    if condition.shape is None or result.shape is None or condition.rank != result.rank:
        return None
    pairs = [(size, other) for size, other in zip(condition.shape, result.shape, strict=True) if size != 1]
    sizes = frozenset(size for size, _ in pairs)
    differ = len(sizes) == len(pairs) and not any(isinstance(size, int | None) for size in sizes)
    return sizes if differ and all(size == other for size, other in pairs) else None


def _masks(block: Attention) -> list[Value]:
    if not block.is_fused:
        return [mask.value for mask in block.masks]
    masks = (block.node.input(port) for port in OPERATORS[block.node.op].masks)
    return [value for value in masks if value is not None]


def _hides(graph: Graph, counted: Value, masks: list[Value]) -> bool:
    """Return whether elements of one of ``masks`` are computed from those counted."""
    shown = graph.look_through(counted, CASTS)
    if shown.element_type != "boolean":
        return False
    added = SHOWN.match(graph, shown)
    if shown in masks or (isinstance(added, Match) and added["mask"] in masks):
        return True

    def inputs(node: Node) -> tuple[Value | None, ...]:
        if node.outputs[0] == shown:
            return ()
        return node.inputs if node.op in ELEMENTWISE else node.inputs[:1] if node.op == "Broadcast" else ()

    reached = graph.backward(masks, inputs)
    return any(shown in node.outputs for node in reached)
