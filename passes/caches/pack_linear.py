"""The pass `pack-linear`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.packed import beam_gather
from graphpass.analysis.caches.pairs import find_pairs, history_of
from graphpass.analysis.caches.parts import carriers
from graphpass.engine.passes import Changed, Pass, PassResult, Skipped
from graphpass.errors import UnsupportedError
from graphpass.ir.rewriter import Handle, Rewriter
from graphpass.passes.caches.packing import finish, name_of_all, resized_start

if TYPE_CHECKING:
    from graphpass.ir.cache import Cache, Inventory
    from graphpass.ir.graph import Graph, Node, Value
    from graphpass.ir.model import Model

__all__ = ["PackLinear"]


@dataclass(frozen=True)
class PackLinear(Pass["Model"]):
    """Carry the states of a layer that do not grow, a window and a recurrent state, in one flat tensor.

    The tensor has a sequence of 1, as linear states have in vLLM's description of caches. Each step takes it apart and
    puts it together, which copies the states: this is for runtimes that keep one block of memory a layer.
    ``past.conv.0`` and ``past.ssm.0`` become ``past.conv+ssm.0``. A layer with one state keeps it as it is.

    Shapes:
        states ``[batch, ...]`` to ``[batch, 1, size]``, where size is the sum of their elements for a batch entry.

    Before:
        conv -> convolution, recurrent -> update
    After:
        conv+recurrent -> VariadicSplit -> Reshape -> convolution, Reshape -> update

    Raises:
        UnsupportedError: GP387, a state's size is not fixed, its batch is not its first axis, its earlier states are
            kept, or the states of a layer are of unlike types or reordered apart.
    """

    name: ClassVar[str] = "pack-linear"

    def run(self, model: Model) -> PassResult:
        """See `Pass.run`."""
        layers = _layers(analyze_caches(model))
        if not layers:
            return Skipped("no layer has two linear caches")
        graph = model.graph
        reads, writes = carriers(graph)
        kept = {node.name for pair in model.analysis(find_pairs) if (node := history_of(graph, pair)) is not None}
        packed = []
        for caches in layers:
            states = [_State(graph, cache, reads[cache.read], writes[str(cache.write)]) for cache in caches]
            _check(states, kept)
            packed.append((states, name_of_all(model, caches)))
        rewriter = model.rewriter()
        made: dict[Value, Handle] = {}
        for states, (past, _) in packed:
            made |= _take_apart(graph, rewriter, states, past)
        for states, (_, present) in packed:
            _put_together(rewriter, states, present, made)
        gone = [cache.name for caches in layers for cache in caches]
        finish(model, rewriter, dict.fromkeys(gone, ()))
        return Changed(model, {"caches packed": len(gone), "caches made": len(layers)})


def _layers(inventory: Inventory) -> list[list[Cache]]:
    """The linear caches of each layer that has several."""
    layers: dict[int, list[Cache]] = {}
    for cache in inventory.of_kind("linear"):
        if cache.layer is not None:
            layers.setdefault(cache.layer, []).append(cache)
    return [caches for caches in layers.values() if len(caches) > 1]


class _State:
    """One state.

    Attributes:
        name: What its cache is called.
        read: Its Parameter or ReadValue.
        write: Its Result or Assign.
        gather: What reorders it by beams; ``None`` where nothing does.
        sizes: Its dimensions but the batch.
    """

    def __init__(self, graph: Graph, cache: Cache, read: Node, write: Node) -> None:
        self.name, self.read, self.write = cache.name, read, write
        self.gather = beam_gather(graph, read)
        shape = cache.shape or ()
        self.sizes = tuple(size for size in shape[1:] if isinstance(size, int))
        if cache.axes.batch != 0 or len(self.sizes) != len(shape) - 1:
            why = "its size is not fixed, or its batch is not its first axis"
            raise UnsupportedError("GP387", f"cache {cache.name} cannot be packed: {why}")

    @property
    def count(self) -> int:
        """How many elements it has for each batch entry."""
        return math.prod(self.sizes)


def _check(states: list[_State], kept: set[str]) -> None:
    for state in states:
        if state.read.name in kept:
            why = "its earlier states are kept, too"
            raise UnsupportedError(
                "GP387", f"cache {state.name} cannot be packed: {why}", "run it before insert-snapshot"
            )
    first = states[0]
    for state in states[1:]:
        indices = [one.gather.inputs[1] if one.gather is not None else None for one in (first, state)]
        types = [one.read.outputs[0].element_type for one in (first, state)]
        if indices[0] != indices[1] or types[0] != types[1]:
            why = "they are of unlike types, or reordered apart"
            raise UnsupportedError("GP387", f"caches {first.name} and {state.name} cannot be packed: {why}")


def _take_apart(graph: Graph, rewriter: Rewriter, states: list[_State], past: str) -> dict[Value, Handle]:
    """What stands for the past of each state, as it was and as it was reordered."""
    first, counts = states[0], [state.count for state in states]
    shape = (None, 1, sum(counts))
    whole = rewriter.add_past(first.read, past, shape, _start(graph, rewriter, states, shape, f"{past}/initial"))
    if first.gather is not None:
        whole = rewriter.clone(first.gather, {0: whole}, f"{past}/by_beam")
    made = {}
    for place, (state, part) in enumerate(zip(states, rewriter.split(whole, 2, counts, f"{past}/parts"), strict=True)):
        own = rewriter.op("Reshape", part, (0, *state.sizes), name=f"{past}/state_{place}")
        for value in [node.outputs[0] for node in (state.read, state.gather) if node is not None]:
            made[value] = own
            for use in graph.uses(value):
                if use.node != state.gather:
                    rewriter.redirect(use.node, use.port, own)
    return made


def _put_together(rewriter: Rewriter, states: list[_State], present: str, made: dict[Value, Handle]) -> None:
    presents = []
    for place, state in enumerate(states):
        new = state.write.source()
        # A state may be written as another one was.
        handle = made[new] if new in made else rewriter.native(new)
        presents.append(rewriter.op("Reshape", handle, (0, 1, state.count), name=f"{present}/state_{place}"))
    shape = (None, 1, sum(state.count for state in states))
    rewriter.add_present(
        states[0].write, present, shape, rewriter.op("Concat", *presents, axis=2, name=f"{present}/parts")
    )
    rewriter.drop(node for state in states for node in (state.write, state.read))


def _start(
    graph: Graph, rewriter: Rewriter, states: list[_State], shape: tuple[int | None, ...], name: str
) -> Handle | None:
    if not all(state.read.inputs for state in states):
        return None
    starts = [state.read.source() for state in states]
    numbers = [graph.constant(graph.producer(start).inputs[0]) for start in starts if graph.producer(start).inputs]
    if len(numbers) == len(starts) and all(number is not None and number == numbers[0] for number in numbers):
        made = resized_start(graph, rewriter, starts[0], shape, name)
        if made is not None:
            return made
    flat = [
        rewriter.op("Reshape", rewriter.native(start), (0, 1, state.count), name=f"{name}/state_{place}")
        for place, (start, state) in enumerate(zip(starts, states, strict=True))
    ]
    return rewriter.op("Concat", *flat, axis=2, name=name)
