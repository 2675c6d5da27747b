"""The pass `pack-kv`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.parts import carriers
from graphpass.engine.passes import Changed, Pass, PassResult, Skipped
from graphpass.errors import UnsupportedError
from graphpass.ir.cache import Cache, Inventory
from graphpass.ir.rewriter import Handle, Rewriter
from graphpass.ir.values import fixed_size
from graphpass.passes.caches.packing import finish, name_of_both, resized_start

if TYPE_CHECKING:
    from graphpass.ir.graph import Graph, Node, Use
    from graphpass.ir.model import Model

__all__ = ["PackKV"]


@dataclass(frozen=True)
class PackKV(Pass["Model"]):
    """Carry key and value of a layer in one tensor, side by side along the content: half as many states.

    New keys and values are put together before they are appended, and the whole is split for attention. So a step
    copies the caches once more, and plugins fuse no such cache with attention: this is for runtimes that keep packed
    caches, as vLLM does. ``past.0.key`` and ``past.0.value`` become ``past.0.key_value``.

    Shapes:
        kv ``[batch, heads, sequence, key_dim]`` and ``[batch, heads, sequence, value_dim]`` to ``[batch, heads,
        sequence, key_dim + value_dim]``, in any order.

    Before:
        past.0.key -> Concat(., key) -> attention
        past.0.value -> Concat(., value) -> attention
    After:
        past.0.key_value -> Concat(., Concat(key, value)) -> VariadicSplit -> attention

    Raises:
        UnsupportedError: GP386, a cache is not appended to as it must be, or has no partner that is as it is.
    """

    name: ClassVar[str] = "pack-kv"

    def run(self, model: Model) -> PassResult:
        """See `Pass.run`."""
        pairs = _pairs(analyze_caches(model))
        if not pairs:
            return Skipped("no layer has a key cache and a value cache")
        graph, rewriter = model.graph, model.rewriter()
        reads, writes = carriers(graph)
        for pair in pairs:
            key, value = (_Chain(graph, cache, reads[cache.read], writes[str(cache.write)]) for cache in pair)
            _pack(graph, rewriter, key, value, name_of_both(model, *pair))
        finish(model, rewriter, {cache.name: () for pair in pairs for cache in pair})
        return Changed(model, {"caches packed": 2 * len(pairs), "caches made": len(pairs)})


def _pairs(inventory: Inventory) -> list[tuple[Cache, Cache]]:
    """The caches that attention reads together, key first."""
    caches = {cache.name: cache for cache in inventory.of_kind("kv")}
    found = dict.fromkeys((block.key, block.value) for block in inventory.attention)
    pairs = [
        (caches[key], caches[value])
        for key, value in found
        if key is not None and value is not None and key != value and key in caches and value in caches
    ]
    names = [cache.name for pair in pairs for cache in pair]
    for pair in pairs:
        for cache in pair:
            if names.count(cache.name) > 1:
                raise UnsupportedError("GP386", f"cache {cache.name} cannot be packed: it has several partners")
        if pair[0].axes != pair[1].axes:
            raise UnsupportedError(
                "GP386",
                f"caches {pair[0].name} and {pair[1].name} cannot be packed: their axes are in unlike order",
                "run standardize-layout before it",
            )
    return pairs


class _Chain:
    """How a cache is appended to.

    Attributes:
        read: Its Parameter or ReadValue.
        write: Its Result or Assign.
        ops: What lies between the read and the Concat, the Concat last: conversions and the beam Gather.
        after: Conversions between the Concat and the write.
        new: What is appended.
        others: Who else reads the cache before it is appended to.
        axis: The axis of the content.
        size: How many entries it has.
    """

    def __init__(self, graph: Graph, cache: Cache, read: Node, write: Node) -> None:
        self.cache, self.read, self.write = cache, read, write
        self.ops: list[Node] = []
        self.others: list[Use] = []
        value = read.outputs[0]
        while not self.ops or self.ops[-1].op != "Concat":
            uses = graph.uses(value)
            onward = [use for use in uses if use.node.op in {"Convert", "Gather", "Concat"} and use.port == 0]
            self.others += [use for use in uses if use not in onward]
            if len(onward) != 1 or any(use.node.op != "ShapeOf" for use in self.others):
                raise self._refused("something else than the Concat of new positions reads what it held before")
            self.ops.append(onward[0].node)
            value = onward[0].node.outputs[0]
        concat = self.ops[-1]
        if concat.attributes["axis"] != cache.axes.sequence or len(concat.inputs) != 2:
            raise self._refused(f"Concat {concat.name} does not append positions to it")
        self.after: list[Node] = []
        present = graph.producer(write.source())
        while present.op == "Convert":
            if present.source().element_type != present.outputs[0].element_type:
                self.after.insert(0, present)
                if len(graph.uses(present.outputs[0])) > 1:
                    raise self._refused(f"{present.called} converts it for more than what is written back")
            present = graph.producer(present.source())
        if present != concat:
            raise self._refused("what is written back is not the cache with the new positions behind it")
        self.new = concat.source(1)
        axis = cache.axes.head_dim
        size = fixed_size(read.outputs[0], axis) if axis is not None else None
        if axis is None or size is None:
            raise self._refused("the size of a head is not known")
        self.axis, self.size = axis, size

    def _refused(self, why: str) -> UnsupportedError:
        return UnsupportedError("GP386", f"cache {self.cache.name} cannot be packed: {why}")

    def check_like(self, other: _Chain) -> None:
        """Raises: UnsupportedError: GP386, the two are not appended to alike."""
        same = [one.op for one in (*self.ops, *self.after)] == [one.op for one in (*other.ops, *other.after)]
        gathers = [[one.inputs[1] for one in chain.ops if one.op == "Gather"] for chain in (self, other)]
        types = [chain.read.outputs[0].element_type for chain in (self, other)]
        if not same or gathers[0] != gathers[1] or types[0] != types[1]:
            raise self._refused(f"{other.cache.name} is not appended to as it is")


def _pack(graph: Graph, rewriter: Rewriter, key: _Chain, value: _Chain, names: tuple[str, str]) -> None:
    key.check_like(value)
    (past, present), axis = names, key.axis
    sizes: list[int | None] = [None] * (key.read.outputs[0].rank or 0)
    sizes[axis] = key.size + value.size
    handle = rewriter.add_past(key.read, past, sizes, _start(graph, rewriter, key, value, sizes, f"{past}/initial"))
    made = {(key.read.index, 0): handle, (value.read.index, 0): handle}
    for one, other in zip(key.ops, value.ops, strict=True):
        sources = {0: handle}
        if one.op == "Concat":
            sources[1] = rewriter.op(
                "Concat", rewriter.native(key.new), rewriter.native(value.new), axis=axis, name=f"{past}/new"
            )
        handle = rewriter.clone(one, sources, f"{past}/{one.op.lower()}")
        made |= {(one.index, 0): handle, (other.index, 0): handle}
    for use in (*key.others, *value.others):
        _read_shape(graph, rewriter, use, made[use.node.source().node, use.node.source().port], axis)
    for chain, part in zip(
        (key, value), rewriter.split(handle, axis, [key.size, value.size], f"{past}/parts"), strict=True
    ):
        for use in graph.uses(chain.ops[-1].outputs[0]):
            if use.node not in (chain.write, *chain.after):
                rewriter.redirect(use.node, use.port, part)
    for convert in key.after:
        handle = rewriter.clone(convert, {0: handle}, f"{present}/{convert.op.lower()}")
    rewriter.add_present(key.write, present, sizes, handle)
    rewriter.drop([key.write, value.write, key.read, value.read])


def _start(
    graph: Graph, rewriter: Rewriter, key: _Chain, value: _Chain, sizes: list[int | None], name: str
) -> Handle | None:
    if not key.read.inputs or not value.read.inputs:
        return None
    starts = [chain.read.source() for chain in (key, value)]
    made = resized_start(graph, rewriter, starts[0], sizes, name)
    return made or rewriter.op("Concat", *[rewriter.native(start) for start in starts], axis=key.axis, name=name)


def _read_shape(graph: Graph, rewriter: Rewriter, use: Use, whole: Handle, axis: int) -> None:
    """Let a ShapeOf of a cache read the packed one, if nobody asks for the size that differs."""
    given = rewriter.whole_shape(use.node)
    for reader in graph.uses(use.node.outputs[0]):
        picked = graph.constant(reader.node.inputs[1]) if reader.node.op == "Gather" and reader.port == 0 else None
        if picked is None or axis in [given[int(place)] for place in picked.reshape(-1)]:
            raise UnsupportedError(
                "GP386", f"a cache cannot be packed: {reader.node.called} reads the size of a head from it"
            )
        places = [given[int(place)] for place in picked.reshape(-1)]
        rewriter.redirect(
            reader.node, 1, rewriter.constant(places if picked.ndim else places[0], "i64", f"{reader.node.name}/places")
        )
    rewriter.redirect(use.node, 0, whole)
