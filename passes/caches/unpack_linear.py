"""The pass `unpack-linear`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.packed import Flat, flat_caches
from graphpass.analysis.caches.parts import carriers
from graphpass.engine.passes import Changed, Pass, PassResult, Skipped
from graphpass.ir.rewriter import Handle, Rewriter
from graphpass.ir.values import fixed_size
from graphpass.passes.caches.packing import finish, names_of_states, resized_start

if TYPE_CHECKING:
    from graphpass.ir.graph import Graph, Node, Value
    from graphpass.ir.model import Model

__all__ = ["UnpackLinear"]


@dataclass(frozen=True)
class UnpackLinear(Pass["Model"]):
    """Carry the states of a layer in tensors of their own where one flat tensor holds them: the inverse of pack-linear.

    The graph says how the tensor is taken apart: by a Split, or Slices that leave nothing out, each part reshaped to
    its state; and a Concat of the new states, flattened, is written back. ``past.conv+ssm.0`` becomes ``past.conv.0``
    and ``past.ssm.0``; other names get a number behind them.

    A variable that starts neither as one number throughout nor as a Concat of its parts makes states that start as
    parts of the same tensor. OpenVINO's CPU plugin (2026.4.1) does not compile that.

    Shapes:
        ``[batch, 1, size]`` to ``[batch, ...]`` for each state, as it is reshaped.

    Before:
        conv+recurrent -> VariadicSplit -> Reshape -> convolution, Reshape -> update
    After:
        conv -> convolution, recurrent -> update
    """

    name: ClassVar[str] = "unpack-linear"

    def run(self, model: Model) -> PassResult:
        """See `Pass.run`."""
        graph = model.graph
        reads, writes = carriers(graph)
        packed = flat_caches(model, analyze_caches(model))
        if not packed:
            return Skipped("no flat tensor holds several states")
        rewriter = model.rewriter()
        names = {cache: names_of_states(model, cache, len(flat.states)) for cache, flat in packed.items()}
        made: dict[Value, Handle] = {}
        for cache, flat in packed.items():
            made |= _take_apart(graph, rewriter, reads[cache.read], flat, names[cache])
        for cache, flat in packed.items():
            _write_apart(graph, rewriter, writes[str(cache.write)], flat, names[cache], made)
        rewriter.drop(node for cache in packed for node in (writes[str(cache.write)], reads[cache.read]))
        finish(model, rewriter, {cache.name: () for cache in packed})
        count = sum(len(flat.states) for flat in packed.values())
        return Changed(model, {"caches unpacked": len(packed), "caches made": count})


def _take_apart(
    graph: Graph, rewriter: Rewriter, read: Node, flat: Flat, names: list[tuple[str, str]]
) -> dict[Value, Handle]:
    """What stands for the past of each state."""
    made = {}
    starts = _starts(graph, rewriter, read, flat, [f"{past}/initial" for past, _ in names])
    for state, (past, _), start in zip(flat.states, names, starts, strict=True):
        own = rewriter.add_past(read, past, (None, *state.sizes), start)
        if flat.gather is not None:
            own = rewriter.clone(flat.gather, {0: own}, f"{past}/by_beam")
        for value in state.pasts:
            made[value] = own
            for use in graph.uses(value):
                rewriter.redirect(use.node, use.port, own)
    return made


def _write_apart(
    graph: Graph, rewriter: Rewriter, write: Node, flat: Flat, names: list[tuple[str, str]], made: dict[Value, Handle]
) -> None:
    for state, (_, present) in zip(flat.states, names, strict=True):
        new = graph.producer(state.flattened).source()
        if new.shape is not None and new.shape[1:] == state.sizes:
            # It may be written as another one was.
            handle = made[new] if new in made else rewriter.native(new)
        else:
            handle = rewriter.op(
                "Reshape", rewriter.native(state.flattened), (0, *state.sizes), name=f"{present}/state"
            )
        rewriter.add_present(write, present, (None, *state.sizes), handle)


def _starts(graph: Graph, rewriter: Rewriter, read: Node, flat: Flat, names: list[str]) -> list[Handle] | list[None]:
    """What each state starts with; nothing where the past is an input."""
    if not read.inputs:
        return [None] * len(names)
    whole = read.source()
    sizes = [state.sizes for state in flat.states]
    made = [resized_start(graph, rewriter, whole, (None, *own), name) for own, name in zip(sizes, names, strict=True)]
    if None not in made:
        return made
    joined = graph.producer(whole)
    counts = [state.size for state in flat.states]
    values = [value for value in joined.inputs if value is not None]
    if joined.op == "Concat" and [fixed_size(value, flat.axis) for value in values] == counts:
        parts = [rewriter.native(value) for value in values]
    else:
        parts = rewriter.split(rewriter.native(whole), flat.axis, counts, f"{names[0]}/parts")
    return [
        rewriter.op("Reshape", part, (0, *own), name=name) for part, own, name in zip(parts, sizes, names, strict=True)
    ]
