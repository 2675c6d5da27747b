"""The pass `expand-latents`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphpass.analysis.caches.latents import Latents, find_latents
from graphpass.analysis.caches.pairs import Pair, appended, find_pairs
from graphpass.analysis.caches.past import asked_axes
from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.engine.conditions import HAS_CACHES
from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.ir.cache import BHSD, Cache
from graphpass.ir.element_types import element_bytes
from graphpass.ir.graph import Graph, Node, Use, Value
from graphpass.ir.miss import MissError
from graphpass.ir.model import Model
from graphpass.ir.operators import SHAPE_READERS
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.writer import Handle
from graphpass.passes.caches.new_positions import NewPositions

#: Axes of equal size in a latent and the keys computed from it: batch and sequence.
_SHARED = {0, 2}


@dataclass(frozen=True)
class ExpandLatents(Pass[Model]):
    """Cache keys and values instead of the latents from which they are computed.

    Latent attention (MLA, DeepSeek-V2) computes the keys and values of all positions in each step, from one small
    vector per position; exports of transformers 5 cache these vectors. The CPU plugin, paged attention and
    GroupQueryAttention require caches of keys and values. After this pass each step computes keys and values of the new
    positions only. The caches take more memory; the pass reports the bytes per position before and after.

    Shapes:
        latent, and rotated part of keys ``[batch, 1, sequence, size]``; key and value
        ``[batch, heads, sequence, head_dim]``

    Before:
        past latent -> Concat(., new latent) -> MatMul(., weights) -> Split -> key, value -> attention
    After:
        new latent -> MatMul(., weights) -> Split -> Concat(past key, .), Concat(past value, .) -> attention
    """

    name = "expand-latents"
    requires = (HAS_CACHES,)

    def run(self, model: Model) -> Done | Skipped:
        layers, graph = find_latents(model), model.graph
        pairs = {pair.read.name: pair for pair in model.analysis(find_pairs)}
        rewriter = model.rewriter()
        try:
            kept = [_keys_and_values(latents) for latents in layers]
            sizes = [[_fixed(model, value) for value in values] for values in kept]
            joined = dict(_joined(graph, pairs, latents) for layer in layers for latents in layer.caches)
            shapes = {
                cache.name: list(_shape_reads(graph, pairs[cache.read])) for layer in layers for cache in layer.caches
            }
            new = NewPositions(model, rewriter, joined)
            made = [[new.of(value) for value in values] for values in kept]
        except MissError as error:
            return Skipped(f"{error.miss.reason} (at {error.miss.node.called})")
        before, after = (sum(cache.bytes_per_token or 0 for layer in layers for cache in layer.caches)), 0
        for layer, values, shape, parts in zip(layers, kept, sizes, made, strict=True):
            for cache, value, fixed, part in zip(layer.caches, values, shape, parts, strict=True):
                _append(graph, rewriter, cache, value, fixed, part, shapes[cache.name])
                after += int(fixed[0] * fixed[1] * element_bytes(value.element_type))
        rewriter.finish()
        return Done({"layers": len(layers), "bytes a position before": before, "after": after} if layers else {})


def _keys_and_values(latents: Latents) -> tuple[Value, Value]:
    attention, key, value = latents.attention, latents.key, latents.value
    if key is None or value is None:
        raise MissError(attention.node, "its keys and values are not [batch, heads, sequence, head_dim]")
    if len(latents.caches) != 2:
        raise MissError(attention.node, f"it reads {len(latents.caches)} caches, not a latent and a rotated part")
    return key, value


def _joined(graph: Graph, pairs: dict[str, Pair], cache: Cache) -> tuple[Value, Value]:
    """Return the past joined with the new positions, and the new positions.

    Raises:
        MissError: The cache is not an input to which a Concat appends.
    """
    pair = pairs[cache.read]
    concat = appended(graph, pair)
    if pair.read.op != "Parameter" or concat is None or cache.axes != BHSD or len(concat.inputs) != 2:
        raise MissError(pair.read, f"cache {cache.name} is not an input to which a Concat appends")
    return concat.outputs[0], concat.source(1)


def _shape_reads(graph: Graph, pair: Pair) -> Iterator[Use]:
    """Yield uses of the past and the present by ShapeOf.

    Raises:
        MissError: One reads the size of a latent.
    """
    values = [pair.past, *([pair.present] if pair.present is not None else [])]
    for value in values:
        for use in graph.uses(value):
            if use.node.op not in SHAPE_READERS:
                continue
            if not _asked_axes(graph, use.node) <= _SHARED:
                raise MissError(use.node, "it reads the size of a latent")
            yield use


def _asked_axes(graph: Graph, shape: Node) -> set[int]:
    selected = {*range(4)[shape.attributes.get("start", 0) : shape.attributes.get("end")]}
    read = set[int]().union(*(asked_axes(graph, use) for use in graph.uses(shape.outputs[0])))
    return read if len(selected) == 4 else selected


def _fixed(model: Model, value: Value) -> tuple[int, int]:
    """Return the number of heads, and ``head_dim``.

    Raises:
        MissError: One of them is not fixed.
    """
    graph, sizes = model.graph, model.analysis(infer_sizes).shape(value)
    fixed = [sizes[axis].as_number for axis in (1, 3)] if sizes is not None else []
    if not fixed or not all(isinstance(size, int) for size in fixed):
        raise MissError(graph.producer(value), "the number of heads is not fixed")
    return int(fixed[0] or 0), int(fixed[1] or 0)


def _append(
    graph: Graph,
    rewriter: Rewriter,
    cache: Cache,
    value: Value,
    fixed: tuple[int, int],
    part: Handle,
    shapes: list[Use],
) -> None:
    """Replace a latent cache by a cache of keys or values."""
    read, write = graph.reads[cache.read], graph.writes[str(cache.write)]
    sizes = [None, fixed[0], None, fixed[1]]
    past = rewriter.add_past(read, f"{cache.read}.expanded", sizes, None)
    whole = rewriter.op("Concat", past, part, axis=2, name=f"{cache.read}.expanded/whole")
    rewriter.add_present(write, f"{cache.write}.expanded", sizes, whole)
    rewriter.redirect_uses(value, whole)
    for use in shapes:
        rewriter.redirect(use.node, use.port, past if use.node.source(use.port) == read.outputs[0] else whole)
    rewriter.drop([write, read])
