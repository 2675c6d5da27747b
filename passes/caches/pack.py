"""The pass `pack`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.packed import only_beam_gather
from graphpass.analysis.caches.pairs import find_pairs, history_of
from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.errors import UnsupportedError
from graphpass.ir.cache import Cache, Inventory
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.model import Model
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.writer import Handle
from graphpass.passes.caches.pack_kv import keys_with_values, pack_keys_with_values
from graphpass.passes.caches.packing import finish, joined_name, names_together, resized_start

#: Measured as for `standardize-layout`.
UNFUSED = "OpenVINO's plugins do not fuse attention with packed caches: steps take about 3 times as long"


@dataclass(frozen=True)
class Pack(Pass[Model]):
    """Pack key and value of a layer in one cache, linear states in another.

    Key and value are concatenated along the last axis of the content, ``head_dim``. New keys and values are
    concatenated before they are appended, and the packed cache is split for attention: ``past.0.key`` and
    ``past.0.value`` become ``past.0.key_value``.

    Linear states, a window and a recurrent state, are flattened after a sequence axis of size 1, as in vLLM's
    description of caches: ``past.conv.0`` and ``past.ssm.0`` become ``past.conv+ssm.0``. The state of a layer with one
    state is unchanged.

    The pass is for runtimes with one block of memory per layer, such as vLLM. A step copies packed caches once more,
    and OpenVINO's plugins do not fuse attention with packed caches.

    Options:
        only: ``kv`` or ``linear`` to pack only caches of this kind.

    Shapes:
        kv ``[batch, heads, sequence, key_dim]`` and ``[batch, heads, sequence, value_dim]`` to ``[batch, heads,
        sequence, key_dim + value_dim]``, in any order; states ``[batch, ...]`` to ``[batch, 1, size]``, where size is
        the sum of their elements for a batch entry.

    Before:
        past.0.key -> Concat(., key) -> attention
        past.0.value -> Concat(., value) -> attention
        conv -> convolution, recurrent -> update
    After:
        past.0.key_value -> Concat(., Concat(key, value)) -> VariadicSplit -> attention
        conv+recurrent -> VariadicSplit -> Reshape -> convolution, Reshape -> update

    Raises:
        UnsupportedError: GP386, a cache is not appended to by one Concat, or key and value differ in type, axes or
            form; GP387, the size of a state is not fixed, its batch is not its first axis, it has a history, or the
            states of a layer are of different types or reordered separately.
    """

    name = "pack"

    only: Literal["all", "kv", "linear"] = "all"

    def run(self, model: Model) -> Done | Skipped:
        inventory = analyze_caches(model)
        pairs = keys_with_values(inventory) if self.only != "linear" else []
        layers = _layers_of_states(inventory) if self.only != "kv" else []
        if not pairs and not layers:
            missing = {"kv": "a key cache and a value cache", "linear": "two linear caches"}
            return Skipped(f"no layer has {missing.get(self.only, ' or '.join(missing.values()))}")
        rewriter = model.rewriter()
        pack_keys_with_values(model, rewriter, pairs)
        _pack_states(model, rewriter, layers)
        packed = [cache.name for caches in (*pairs, *layers) for cache in caches]
        finish(model, rewriter, dict.fromkeys(packed, ()))
        notes = (UNFUSED,) if inventory.stateful and pairs else ()
        return Done({"caches packed": len(packed), "caches made": len(pairs) + len(layers)}, notes)


def _layers_of_states(inventory: Inventory) -> list[list[Cache]]:
    """Return the linear caches of each layer with several of them."""
    layers: dict[int, list[Cache]] = {}
    for cache in inventory.of_kind("linear"):
        if cache.layer is not None:
            layers.setdefault(cache.layer, []).append(cache)
    return [caches for caches in layers.values() if len(caches) > 1]


def _pack_states(model: Model, rewriter: Rewriter, layers: list[list[Cache]]) -> None:
    """Store the states of each layer in one flat cache.

    Raises:
        UnsupportedError: GP387, the size of a state is not fixed, its batch is not its first axis, it has a history,
            or the states of a layer are of different types or reordered separately.
    """
    graph = model.graph
    kept = {node.name for pair in model.analysis(find_pairs) if (node := history_of(graph, pair)) is not None}
    packed = []
    for caches in layers:
        states = [_State(graph, cache, graph.reads[cache.read], graph.writes[cache.write]) for cache in caches]
        _check(states, kept)
        packed.append((states, names_together(model, caches, joined_name)))
    made: dict[Value, Handle] = {}
    for states, (past, _) in packed:
        made |= _take_apart(rewriter, states, past)
    for states, (_, present) in packed:
        _put_together(rewriter, states, present, made)


class _State:
    """A linear cache to pack.

    Attributes:
        name: Name of its cache.
        read: Its Parameter or ReadValue.
        write: Its Result or Assign.
        gather: Its beam Gather, if any.
        sizes: Its dimensions without the batch.
    """

    def __init__(self, graph: Graph, cache: Cache, read: Node, write: Node) -> None:
        self.name, self.read, self.write = cache.name, read, write
        self.gather = only_beam_gather(graph, read)
        shape = cache.shape or ()
        self.sizes = tuple(size for size in shape[1:] if isinstance(size, int))
        if cache.axes.batch != 0 or len(self.sizes) != len(shape) - 1:
            why = "its size is not fixed, or its batch is not its first axis"
            raise UnsupportedError("GP387", f"cache {cache.name} cannot be packed: {why}")

    @property
    def count(self) -> int:
        return math.prod(self.sizes)


def _check(states: list[_State], kept: set[str]) -> None:
    for state in states:
        if state.read.name in kept:
            raise UnsupportedError(
                "GP387",
                f"cache {state.name} cannot be packed: a history stores its earlier states",
                "run pack before insert-snapshot",
            )
    first = states[0]
    for state in states[1:]:
        indices = [part.gather.inputs[1] if part.gather is not None else None for part in (first, state)]
        types = [part.read.outputs[0].element_type for part in (first, state)]
        if indices[0] != indices[1] or types[0] != types[1]:
            why = "they are of different types, or reordered separately"
            raise UnsupportedError("GP387", f"caches {first.name} and {state.name} cannot be packed: {why}")


def _take_apart(rewriter: Rewriter, states: list[_State], past: str) -> dict[Value, Handle]:
    """Add the flat cache.

    Returns:
        The replacements of pasts and of their beam Gathers.
    """
    first, counts = states[0], [state.count for state in states]
    shape = (None, 1, sum(counts))
    whole = rewriter.add_past(first.read, past, shape, _start(rewriter, states, shape, f"{past}/initial"))
    if first.gather is not None:
        whole = rewriter.clone(first.gather, {0: whole}, f"{past}/by_beam")
    made = {}
    for index, (state, part) in enumerate(zip(states, rewriter.split(whole, 2, counts, f"{past}/parts"), strict=True)):
        own = rewriter.op("Reshape", part, (0, *state.sizes), name=f"{past}/state_{index}")
        for value in [node.outputs[0] for node in (state.read, state.gather) if node is not None]:
            made[value] = own
            for use in rewriter.graph.uses(value):
                if use.node != state.gather:
                    rewriter.redirect(use.node, use.port, own)
    return made


def _put_together(rewriter: Rewriter, states: list[_State], present: str, made: dict[Value, Handle]) -> None:
    # A state may be written from the past of another state.
    news = [made.get(state.write.source(), state.write.source()) for state in states]
    presents = [
        rewriter.op("Reshape", new, (0, 1, state.count), name=f"{present}/state_{index}")
        for index, (new, state) in enumerate(zip(news, states, strict=True))
    ]
    shape = (None, 1, sum(state.count for state in states))
    whole = rewriter.op("Concat", *presents, axis=2, name=f"{present}/parts")
    rewriter.add_present(states[0].write, present, shape, whole)
    rewriter.drop(node for state in states for node in (state.write, state.read))


def _start(rewriter: Rewriter, states: list[_State], shape: tuple[int | None, ...], name: str) -> Handle | None:
    if not all(state.read.inputs for state in states):
        return None
    graph, starts = rewriter.graph, [state.read.source() for state in states]
    values = [graph.constant(source) for start in starts for source in graph.producer(start).inputs[:1]]
    known = {None if number is None or number.size > 1 else number.item() for number in values}
    if len(values) == len(starts) and len(known) == 1 and None not in known:
        made = resized_start(rewriter, starts[0], shape, name)
        if made is not None:
            return made
    flat = [
        rewriter.op("Reshape", start, (0, 1, state.count), name=f"{name}/state_{index}")
        for index, (start, state) in enumerate(zip(starts, states, strict=True))
    ]
    return rewriter.op("Concat", *flat, axis=2, name=name)
