"""Take flat tensors that hold several states of a layer apart; see the pass `unpack`."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from graphpass.analysis.caches.packed import Flat
from graphpass.ir.cache import Cache
from graphpass.ir.graph import Node, Value
from graphpass.ir.model import Model
from graphpass.ir.rewriter import Handle, Rewriter
from graphpass.ir.values import fixed_size
from graphpass.passes.caches.packing import names_apart, resized_start, split_name


def unpack_states(model: Model, rewriter: Rewriter, flat: Mapping[Cache, Flat]) -> None:
    """Carry the states that flat tensors hold in tensors of their own."""
    names = {
        cache: names_apart(model, cache, functools.partial(split_name, count=len(one.states)))
        for cache, one in flat.items()
    }
    made: dict[Value, Handle] = {}
    for cache, one in flat.items():
        made |= _take_apart(rewriter, model.graph.reads[cache.read], one, names[cache])
    for cache, one in flat.items():
        _write_apart(rewriter, model.graph.writes[cache.write], one, names[cache], made)
    rewriter.drop(node for cache in flat for node in (model.graph.writes[cache.write], model.graph.reads[cache.read]))


def _take_apart(rewriter: Rewriter, read: Node, flat: Flat, names: list[tuple[str, str]]) -> dict[Value, Handle]:
    made = {}
    starts = _starts(rewriter, read, flat, [f"{past}/initial" for past, _ in names])
    for state, (past, _), start in zip(flat.states, names, starts, strict=True):
        own = rewriter.add_past(read, past, (None, *state.sizes), start)
        if flat.gather is not None:
            own = rewriter.clone(flat.gather, {0: own}, f"{past}/by_beam")
        for value in state.pasts:
            made[value] = own
            for use in rewriter.graph.uses(value):
                rewriter.redirect(use.node, use.port, own)
    return made


def _write_apart(
    rewriter: Rewriter, write: Node, flat: Flat, names: list[tuple[str, str]], made: dict[Value, Handle]
) -> None:
    for state, (_, present) in zip(flat.states, names, strict=True):
        new = rewriter.graph.producer(state.flattened).source()
        if new.shape is not None and new.shape[1:] == state.sizes:
            # It may be written as another one was.
            handle = made[new] if new in made else rewriter.native(new)
        else:
            handle = rewriter.op("Reshape", state.flattened, (0, *state.sizes), name=f"{present}/state")
        rewriter.add_present(write, present, (None, *state.sizes), handle)


def _starts(rewriter: Rewriter, read: Node, flat: Flat, names: list[str]) -> list[Handle] | list[None]:
    if not read.inputs:
        return [None] * len(names)
    whole = read.source()
    sizes = [state.sizes for state in flat.states]
    made = [resized_start(rewriter, whole, (None, *own), name) for own, name in zip(sizes, names, strict=True)]
    if None not in made:
        return made
    joined = rewriter.graph.producer(whole)
    counts = [state.size for state in flat.states]
    values = [value for value in joined.inputs if value is not None]
    if joined.op == "Concat" and [fixed_size(value, flat.axis) for value in values] == counts:
        parts: list[Handle] = values
    else:
        parts = rewriter.split(whole, flat.axis, counts, f"{names[0]}/parts")
    return [
        rewriter.op("Reshape", part, (0, *own), name=name) for part, own, name in zip(parts, sizes, names, strict=True)
    ]
