"""The pass `unpack`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.packed import Flat, MergedHeads, flat_caches, merged_heads, packed_caches, stacked_caches
from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.ir.cache import Cache
from graphpass.ir.graph import Node, Value
from graphpass.ir.model import Model
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.values import fixed_size
from graphpass.ir.writer import Handle
from graphpass.passes.caches.packing import finish, names_apart, resized_start, split_name
from graphpass.passes.caches.unpack_kv import unpack_keys_with_values, unpack_layers


@dataclass(frozen=True)
class Unpack(Pass[Model]):
    """Split caches of several layers, of key and value, and of linear states.

    The parts follow from the operators that split the cache. This is the inverse of `pack`.

    - Key and value: a Split, two Slices that cover the cache, or two Gathers of one index each, along ``head_dim``
      or an axis of size 2. Operators on the packed cache are replaced by operators on the parts, and new keys and
      values are no longer concatenated. ``past.0.key_value`` becomes ``past.0.key`` and ``past.0.value``; other names
      get the suffixes ``.key`` and ``.value``. Caches that attention reads in other forms, such as latents, are
      unchanged.
    - Layers: Gathers, Slices or a Split along an axis of the layers, along which a Concat joins the new tensors.
      ``past`` becomes ``past.0``, ``past.1`` and so on, which may pack key and value.
    - Linear states: a Split, or Slices that cover the cache, with each part reshaped to its state, and a present
      that is a Concat of the flattened new states. ``past.conv+ssm.0`` becomes ``past.conv.0`` and ``past.ssm.0``;
      other names get an index as suffix.

    The initial value of a variable is split, unless it is a scalar that is broadcast or a Concat of the parts.
    OpenVINO's CPU plugin (2026.4.1) does not compile a split initial value.

    Options:
        only: ``kv`` or ``linear`` to unpack only caches of this kind; ``heads`` to split caches ``[batch, sequence,
            heads * head_dim]`` of exports that reshape each past and present.

    Shapes:
        kv ``[batch, heads, sequence, key_dim + value_dim]`` to ``[batch, heads, sequence, key_dim]`` and ``[batch,
        heads, sequence, value_dim]``, or the axis of size 2 is removed; in any order. States ``[batch, 1, size]`` to
        ``[batch, ...]`` each, the shape after its Reshape.

    Before:
        past.0.key_value -> Concat(., Concat(key, value)) -> Split -> attention
        conv+recurrent -> VariadicSplit -> Reshape -> convolution, Reshape -> update
    After:
        past.0.key -> Concat(., key) -> attention
        past.0.value -> Concat(., value) -> attention
        conv -> convolution, recurrent -> update
    """

    name = "unpack"

    only: Literal["all", "kv", "linear", "heads"] = "all"

    def run(self, model: Model) -> Done | Skipped:
        if self.only == "heads":
            merged = merged_heads(model, analyze_caches(model))
            _split_heads(model, merged)
            return Done({"caches split into heads": len(merged)}) if merged else Skipped("no cache merges heads")
        layers = 0
        while self.only != "linear" and (stacked := stacked_caches(model, analyze_caches(model))):
            unpack_layers(model, stacked)
            layers += len(stacked)
        inventory = analyze_caches(model)
        packed = packed_caches(inventory) if self.only != "linear" else ()
        flat = flat_caches(model, inventory) if self.only != "kv" else {}
        if layers and not packed and not flat:
            return Done({"caches of several layers unpacked": layers})
        if not packed and not flat:
            contents = {"kv": "key and value", "linear": "several states"}
            return Skipped(f"no cache packs {contents.get(self.only, ' or '.join(contents.values()))}")
        rewriter = model.rewriter()
        made, notes = unpack_keys_with_values(model, rewriter, packed)
        count = sum(len(parts) for parts in made.values()) + sum(len(entry.states) for entry in flat.values())
        _unpack_states(model, rewriter, flat)
        finish(model, rewriter, made | {cache.name: [] for cache in flat})
        counts = {"caches of several layers unpacked": layers} if layers else {}
        return Done(counts | {"caches unpacked": len(made) + len(flat), "caches made": count}, tuple(notes))


def _split_heads(model: Model, merged: Mapping[Cache, MergedHeads]) -> None:
    """Split the last axis of caches into heads and channels; names are kept."""
    rewriter, graph = model.rewriter(), model.graph
    names: dict[str, str] = {}
    for cache, entry in merged.items():
        read, write = graph.reads[cache.read], graph.writes[str(cache.write)]
        sizes = [None] * ((read.outputs[0].rank or 0) - 1) + [*entry.sizes]
        own = rewriter.add_past(read, f"{cache.read}/heads", sizes, None)
        for use in (use for value in entry.pasts for use in graph.uses(value)):
            rewriter.redirect(use.node, use.port, own)
        for shape in entry.shapes:
            rewriter.redirect(shape, 0, own)
        rewriter.add_present(write, f"{cache.write}/heads", sizes, rewriter.native(entry.new))
        rewriter.drop([write, read])
        names |= {f"{cache.read}/heads": cache.read, f"{cache.write}/heads": str(cache.write)}
    rewriter.finish()
    rewriter, graph = model.rewriter(), model.graph
    ports = dict(graph.reads) | dict(graph.writes)
    rewriter.rename_ports({ports[made]: name for made, name in names.items()})
    rewriter.finish()


def _unpack_states(model: Model, rewriter: Rewriter, flat: Mapping[Cache, Flat]) -> None:
    """Replace flat caches by one cache for each state."""
    names = {
        cache: names_apart(model, cache, functools.partial(split_name, count=len(entry.states)))
        for cache, entry in flat.items()
    }
    made: dict[Value, Handle] = {}
    for cache, entry in flat.items():
        made |= _take_apart(rewriter, model.graph.reads[cache.read], entry, names[cache])
    for cache, entry in flat.items():
        _write_apart(rewriter, model.graph.writes[cache.write], entry, names[cache], made)
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
            # A state may be written from the past of another state.
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
