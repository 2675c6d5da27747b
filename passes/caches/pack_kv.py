"""Store key and value of a layer in one cache; see the pass `pack`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from graphpass.errors import UnsupportedError
from graphpass.ir.cache import Cache, Inventory
from graphpass.ir.graph import Graph, Node, Use
from graphpass.ir.model import Model
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.values import fixed_size
from graphpass.ir.writer import Handle
from graphpass.passes.caches.packing import names_together, packed_name, resized_start
from graphpass.passes.caches.relayout import move_picks


def keys_with_values(inventory: Inventory) -> list[tuple[Cache, Cache]]:
    """Return the pairs of caches that an attention reads, key first.

    Raises:
        UnsupportedError: GP386, a cache is in several pairs, or a pair has different orders of axes.
    """
    caches = {cache.name: cache for cache in inventory.of_kind("kv")}
    couples = dict.fromkeys((block.key, block.value) for block in inventory.attention)
    pairs = [
        (caches[key], caches[value])
        for key, value in couples
        if key is not None and value is not None and key != value and key in caches and value in caches
    ]
    for cache, count in Counter(cache for pair in pairs for cache in pair).items():
        if count > 1:
            raise UnsupportedError(
                "GP386", f"cache {cache.name} cannot be packed: attention reads it with several other caches"
            )
    for key, value in pairs:
        if key.axes != value.axes:
            raise UnsupportedError(
                "GP386",
                f"caches {key.name} and {value.name} cannot be packed: their axes are in different orders",
                "run standardize-layout before pack",
            )
    return pairs


def pack_keys_with_values(model: Model, rewriter: Rewriter, pairs: Iterable[tuple[Cache, Cache]]) -> None:
    """Store each key and its value in one cache.

    Args:
        model: The model.
        rewriter: Its rewriter, which the caller finishes.
        pairs: Key and value of each layer, from `keys_with_values`.

    Raises:
        UnsupportedError: GP386, a key and its value differ in type or update, are updated otherwise than by a Concat of
            past and new positions, or have an unknown size of ``head_dim``.
    """
    graph = model.graph
    for pair in pairs:
        key, value = (_Chain(graph, cache, graph.reads[cache.read], graph.writes[cache.write]) for cache in pair)
        _pack(rewriter, key, value, names_together(model, pair, packed_name))


class _Chain:
    """The operators that append to a cache.

    Attributes:
        read: Its Parameter or ReadValue.
        write: Its Result or Assign.
        ops: Operators from the read to the Concat, which is the last: conversions and the beam Gather.
        after: Conversions between the Concat and the write.
        new: The new positions.
        others: Uses of the shape of the cache, before the Concat.
        axis: The axis ``head_dim``.
        size: Its size.
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
                raise self._refusal("its past has users other than the Concat of new positions")
            self.ops.append(onward[0].node)
            value = onward[0].node.outputs[0]
        concat = self.ops[-1]
        if concat.attributes["axis"] != cache.axes.sequence or len(concat.inputs) != 2:
            raise self._refusal(f"Concat {concat.name} does not append positions to it")
        self.after: list[Node] = []
        present = graph.producer(write.source())
        while present.op == "Convert":
            if present.source().element_type != present.outputs[0].element_type:
                self.after.insert(0, present)
                if len(graph.uses(present.outputs[0])) > 1:
                    raise self._refusal(f"the result of {present.called} has users other than the present")
            present = graph.producer(present.source())
        if present != concat:
            raise self._refusal("its present is not the past followed by the new positions")
        self.new = concat.source(1)
        axis = cache.axes.head_dim
        size = fixed_size(read.outputs[0], axis) if axis is not None else None
        if axis is None or size is None:
            raise self._refusal("its head_dim is unknown")
        self.axis, self.size = axis, size

    def _refusal(self, why: str) -> UnsupportedError:
        return UnsupportedError("GP386", f"cache {self.cache.name} cannot be packed: {why}")

    def check_like(self, other: _Chain) -> None:
        """Check that the same operators append to both.

        Raises:
            UnsupportedError: GP386, the operators differ.
        """
        forms = [
            (
                [node.op for node in (*chain.ops, *chain.after)],
                [node.inputs[1] for node in chain.ops if node.op == "Gather"],
                chain.read.outputs[0].element_type,
            )
            for chain in (self, other)
        ]
        if forms[0] != forms[1]:
            raise self._refusal(f"{other.cache.name} differs from it in type or in the operators that append")


def _pack(rewriter: Rewriter, key: _Chain, value: _Chain, names: tuple[str, str]) -> None:
    key.check_like(value)
    graph, (past, present), axis = rewriter.graph, names, key.axis
    sizes: list[int | None] = [None] * (key.read.outputs[0].rank or 0)
    sizes[axis] = key.size + value.size
    handle = rewriter.add_past(key.read, past, sizes, _start(rewriter, key, value, sizes, f"{past}/initial"))
    made = dict.fromkeys((key.read.outputs[0], value.read.outputs[0]), handle)
    for left, right in zip(key.ops, value.ops, strict=True):
        sources = {0: handle}
        if left.op == "Concat":
            sources[1] = rewriter.op("Concat", key.new, value.new, axis=axis, name=f"{past}/new")
        handle = rewriter.clone(left, sources, f"{past}/{left.op.lower()}")
        made |= dict.fromkeys((left.outputs[0], right.outputs[0]), handle)
    for use in (*key.others, *value.others):
        _redirect_shape(rewriter, use, made[use.node.source()], axis)
    parts = rewriter.split(handle, axis, [key.size, value.size], f"{past}/parts")
    for chain, part in zip((key, value), parts, strict=True):
        for use in graph.uses(chain.ops[-1].outputs[0]):
            if use.node not in (chain.write, *chain.after):
                rewriter.redirect(use.node, use.port, part)
    for convert in key.after:
        handle = rewriter.clone(convert, {0: handle}, f"{present}/{convert.op.lower()}")
    rewriter.add_present(key.write, present, sizes, handle)
    rewriter.drop([key.write, value.write, key.read, value.read])


def _start(rewriter: Rewriter, key: _Chain, value: _Chain, sizes: list[int | None], name: str) -> Handle | None:
    if not key.read.inputs or not value.read.inputs:
        return None
    made = resized_start(rewriter, key.read.source(), sizes, name)
    if made is not None:
        return made
    return rewriter.op("Concat", key.read.source(), value.read.source(), axis=key.axis, name=name)


def _redirect_shape(rewriter: Rewriter, use: Use, whole: Handle, axis: int) -> None:
    """Redirect a ShapeOf to the packed cache.

    Raises:
        UnsupportedError: GP386, the ShapeOf is read for ``head_dim``.
    """
    shape = rewriter.whole_shape(use.node)
    for reader in move_picks(rewriter, use.node, [-1 if source == axis else source for source in shape]):
        reason = f"{reader.node.called} reads head_dim from its shape"
        raise UnsupportedError("GP386", f"a cache cannot be packed: {reason}")
    rewriter.redirect(use.node, 0, whole)
