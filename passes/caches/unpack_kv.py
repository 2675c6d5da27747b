"""The pass `unpack-kv`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from graphpass.analysis.attention.find import find_attention
from graphpass.analysis.attention.operands import scores_product, weighted_value
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.parts import Parts, carriers, find_parts, packed_caches
from graphpass.engine.passes import Changed, Pass, PassResult, Skipped, Unchanged
from graphpass.ir.cache import Axes, Cache
from graphpass.ir.declaration import Declaration
from graphpass.passes.caches.packing import finish, names_of_parts
from graphpass.passes.caches.unpacking import unpack

if TYPE_CHECKING:
    from graphpass.ir.graph import Graph, Value
    from graphpass.ir.model import Model

__all__ = ["UnpackKV"]


@dataclass(frozen=True)
class UnpackKV(Pass["Model"]):
    """Carry key and value in tensors of their own where one tensor holds both: the inverse of pack-kv.

    The graph says how the tensor is taken apart: by a Split, by two Slices that leave nothing out, or by a Gather of
    each of two entries; along the content, or along an axis of two. What works on the whole works on the parts then,
    and new keys and values are no longer put together. ``past.0.key_value`` becomes ``past.0.key`` and
    ``past.0.value``; other names get ``.key`` and ``.value`` behind them.

    A cache that attention reads as key and as value otherwise, such as a latent one, stays as it is.

    Shapes:
        kv ``[batch, heads, sequence, key_dim + value_dim]`` to ``[batch, heads, sequence, key_dim]`` and ``[batch,
        heads, sequence, value_dim]``; or without an axis of 2; in any order.

    Before:
        past.0.key_value -> Concat(., Concat(key, value)) -> Split -> attention
    After:
        past.0.key -> Concat(., key) -> attention
        past.0.value -> Concat(., value) -> attention
    """

    name: ClassVar[str] = "unpack-kv"

    def run(self, model: Model) -> PassResult:
        """See `Pass.run`."""
        caches = packed_caches(analyze_caches(model))
        if not caches:
            return Skipped("no cache holds key and value")
        graph, rewriter = model.graph, model.rewriter()
        reads, writes = carriers(graph)
        made: dict[str, list[Declaration]] = {}
        notes = []
        for cache in caches:
            read = reads.get(cache.read)
            parts = find_parts(graph, read.outputs[0]) if read is not None else None
            first = _first_is_key(model, parts) if parts is not None else None
            if read is None or parts is None or first is None:
                notes.append(f"cache {cache.name} stays as it is: nothing takes a key and a value out of it")
                continue
            names = names_of_parts(model, cache)
            unpack(graph, rewriter, read, writes[str(cache.write)], parts, names if first else names[::-1])
            made[cache.name] = _declared(cache, parts, [past for past, _ in names])
        if not made:
            return Unchanged(tuple(notes))
        finish(model, rewriter, made)
        return Changed(model, {"caches unpacked": len(made), "caches made": 2 * len(made)}, tuple(notes))


def _first_is_key(model: Model, parts: Parts) -> bool | None:
    """Whether the first part is the key, by the first attention that reads either; ``None`` if that does not tell."""
    graph = model.graph
    places = [{(value.node, value.port) for value in parts.places(index)} for index in (0, 1)]
    earliest = min(node for part in places for node, _ in part)
    for attention in model.analysis(find_attention):
        if attention.node.index < earliest:
            continue
        product = scores_product(graph, attention.node) if attention.key is None else None
        key = product.inputs[1] if product is not None else attention.key
        value = attention.value or weighted_value(graph, attention.node)
        of_key, of_value = (_reached(graph, operand, places, earliest) for operand in (key, value))
        if of_key or of_value:
            return of_key == [0] if sorted((of_key, of_value)) == [[0], [1]] else None
    return None


def _reached(graph: Graph, operand: Value | None, places: list[set[tuple[int, int]]], earliest: int) -> list[int]:
    """Which of the parts ``operand`` is made of."""
    pending, seen = [operand], set()
    while pending:
        value = pending.pop()
        if value is None or value.node < earliest or (value.node, value.port) in seen:
            continue
        seen.add((value.node, value.port))
        node = graph.producer(value)
        if node.op != "ShapeOf" and not any((value.node, value.port) in part for part in places):
            pending.extend(node.inputs)
    return [index for index, part in enumerate(places) if part & seen]


def _declared(cache: Cache, parts: Parts, names: list[str]) -> list[Declaration]:
    """What was said of the whole, as it holds for key and value."""
    gone = parts.axis if parts.axis != cache.axes.head_dim else None

    def place(axis: int | None) -> int | None:
        return axis - (gone is not None and axis > gone) if axis is not None else None

    axes = cache.axes
    moved = Axes(place(axes.batch), place(axes.heads), place(axes.sequence), place(axes.head_dim))
    return [Declaration(names[0], "kv", "key", moved), Declaration(names[1], "kv", "value", moved)]
