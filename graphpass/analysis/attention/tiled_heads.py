"""Find attention whose heads are tiled as a whole, or rows of the query."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.attention.find import find_attention, find_score_masks
from graphpass.analysis.attention.operators import operator_sinks
from graphpass.analysis.attention.types import Attention, Mask
from graphpass.analysis.symbolic.folding import fold_elements
from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.ir.graph import Graph, Node, Use, Value
from graphpass.ir.inputs import token_input
from graphpass.ir.miss import Miss, MissError, or_miss
from graphpass.ir.model import Model
from graphpass.ir.operators import SHAPE_READERS
from graphpass.ir.values import fixed_size


@dataclass(frozen=True, slots=True)
class TiledHeads:
    """Attention whose query head ``h`` reads head ``h % heads`` of keys and values.

    Attributes:
        attention: The attention block.
        query: Its query ``[batch, heads * times, length, head_dim]``.
        tiles: The Tiles of key and value, of ``[batch, heads, sequence, head_dim]``.
        heads: Number of heads of keys and values.
        times: Number of query heads that read each.
    """

    attention: Attention
    query: Value
    tiles: tuple[Node, Node]
    heads: int
    times: int


@dataclass(frozen=True, slots=True)
class FoldedHeads:
    """Attention of one token, whose query heads are rows of a head of keys.

    Attributes:
        attention: The attention block, with query ``[batch, heads, times, head_dim]``.
        heads: Number of heads of keys and values.
        times: Number of query heads that read each.
        reads: The uses of key and value by the attention.
    """

    attention: Attention
    heads: int
    times: int
    reads: tuple[Use, ...]


def find_tiled_heads(model: Model) -> tuple[TiledHeads | FoldedHeads | Miss, ...]:
    """Return attention with tiled or folded heads, or why its heads cannot be permuted."""
    found: list[TiledHeads | FoldedHeads | Miss] = []
    for attention, masks in zip(model.analysis(find_attention), model.analysis(find_score_masks), strict=True):
        tiles = tuple(
            model.graph.producer(operand) for operand in (attention.key, attention.value) if operand is not None
        )
        if attention.miss is None and [tile.op for tile in tiles] == ["Tile", "Tile"]:
            found.append(masks if isinstance(masks, Miss) else _read(model, attention, masks, tiles))
        elif not isinstance(masks, Miss) and (folded := _folded(model, attention, masks)) is not None:
            found.append(folded)
    return tuple(found)


def _folded(model: Model, attention: Attention, masks: tuple[Mask, ...]) -> FoldedHeads | None:
    graph, tokens, query = model.graph, token_input(model.graph), attention.query
    is_step = tokens is not None and fixed_size(tokens, 1) == 1
    if not is_step or query is None or attention.key is None or attention.value is None or attention.miss is not None:
        return None
    times, heads = _size(model, query, -2), _size(model, query, -3)
    if not times or times == 1 or query.rank != 4 or any(_size(model, mask.value, -2) != 1 for mask in masks):
        return None
    operands = (attention.key, attention.value)
    others = {"Assign", "Result", "ShapeOf"}
    reads = [use for value in operands for use in graph.uses(value) if use.node.op not in others]
    if len(reads) != 2 or any(_size(model, value, -3) != heads for value in operands) or heads is None:
        return None
    return FoldedHeads(attention, heads, times, tuple(reads))


@or_miss
def _read(model: Model, attention: Attention, masks: tuple[Mask, ...], tiles: tuple[Node, ...]) -> TiledHeads:
    graph, (key, value) = model.graph, tiles
    times, heads, query = _times(graph, key), _size(model, key.source(), -3), attention.query
    if times is None or heads is None or (times, heads) != (_times(graph, value), _size(model, value.source(), -3)):
        raise MissError(key, "it does not repeat a known number of heads, equal for key and value")
    if query is None or query.rank != 4:
        raise MissError(key, "its query has no axis of heads")
    ends = [_reader(graph, operand) for operand in (query, key.outputs[0], value.outputs[0])]
    if None in ends or ends[0] != ends[1]:
        raise MissError(key, "its query, key or value has other users than the attention")
    has_sink = operator_sinks(attention.node) if attention.is_fused else attention.sink is not None
    if has_sink or any(_size(model, mask.value, -3) != 1 for mask in masks):
        raise MissError(key, "its mask or attention sink differs from head to head")
    return TiledHeads(attention, query, (key, value), heads, times)


def _size(model: Model, value: Value, axis: int) -> int | None:
    """Return a size by its axis from the end; 1 without it, ``None`` if unknown."""
    shape = model.analysis(infer_sizes).shape(value)
    size = None if shape is None else shape[axis].as_number if len(shape) >= -axis else 1
    return int(size) if size is not None else None


def _times(graph: Graph, tile: Node) -> int | None:
    """Return how often a Tile repeats axis 1; ``None`` if it repeats other axes."""
    repeats = fold_elements(graph, tile.source(1))
    if repeats is None or repeats.size != 4 or tile.source().rank != 4:
        return None
    batch, times, length, size = map(int, repeats.reshape(-1))
    return times if (batch, length, size) == (1, 1, 1) else None


def _reader(graph: Graph, value: Value) -> Node | None:
    """Return the product or operator that reads ``value``; ``None`` if anything else does."""
    while True:
        uses = [use for use in graph.uses(value) if use.node.op not in SHAPE_READERS]
        if len(uses) != 1:
            return None
        node = uses[0].node
        if node.op not in {"Convert", "Divide", "Multiply", "Reshape", "Transpose"}:
            return node
        value = node.outputs[0]
