"""Find attention whose heads of keys and values are repeated as a whole."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.attention.find import find_attention, find_score_masks
from graphpass.analysis.attention.operators import operator_sinks
from graphpass.analysis.attention.types import Attention, Mask
from graphpass.analysis.symbolic.folding import fold_elements
from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import Miss, MissError, or_miss
from graphpass.ir.model import Model
from graphpass.ir.operators import SHAPE_READERS


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


def find_tiled_heads(model: Model) -> tuple[TiledHeads | Miss, ...]:
    """Return attention with tiled heads, or why its heads cannot be permuted."""
    found = []
    for attention, masks in zip(model.analysis(find_attention), model.analysis(find_score_masks), strict=True):
        tiles = tuple(
            model.graph.producer(operand) for operand in (attention.key, attention.value) if operand is not None
        )
        if attention.miss is None and [tile.op for tile in tiles] == ["Tile", "Tile"]:
            found.append(masks if isinstance(masks, Miss) else _read(model, attention, masks, tiles))
    return tuple(found)


@or_miss
def _read(model: Model, attention: Attention, masks: tuple[Mask, ...], tiles: tuple[Node, ...]) -> TiledHeads:
    graph, (key, value) = model.graph, tiles
    times, heads, query = _times(graph, key), _heads(model, key.source()), attention.query
    if times is None or heads is None or (times, heads) != (_times(graph, value), _heads(model, value.source())):
        raise MissError(key, "it does not repeat a known number of heads, equal for key and value")
    if query is None or query.rank != 4:
        raise MissError(key, "its query has no axis of heads")
    ends = [_reader(graph, operand) for operand in (query, key.outputs[0], value.outputs[0])]
    if None in ends or ends[0] != ends[1]:
        raise MissError(key, "its query, key or value has other users than the attention")
    has_sink = operator_sinks(attention.node) if attention.is_fused else attention.sink is not None
    if has_sink or any(_heads(model, mask.value) != 1 for mask in masks):
        raise MissError(key, "its mask or attention sink differs from head to head")
    return TiledHeads(attention, query, (key, value), heads, times)


def _heads(model: Model, value: Value) -> int | None:
    """Return the third size from the end; 1 without it, ``None`` if unknown."""
    shape = model.analysis(infer_sizes).shape(value)
    size = None if shape is None else shape[-3].as_number if len(shape) > 2 else 1
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
