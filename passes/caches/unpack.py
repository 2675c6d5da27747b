"""The pass `unpack`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.packed import flat_caches, packed_caches
from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.ir.model import Model
from graphpass.passes.caches.packing import finish
from graphpass.passes.caches.unpack_kv import unpack_keys_with_values
from graphpass.passes.caches.unpack_linear import unpack_states


@dataclass(frozen=True)
class Unpack(Pass[Model]):
    """Carry key and value, and linear states, apart: the inverse of `pack`.

    The graph shows how a tensor is taken apart. One of key and value: by a Split, by two Slices that leave nothing out,
    or by a Gather of each of two entries; along the content, or along an axis of two. Operators on the whole work on
    the parts then, and new keys and values are no longer concatenated. ``past.0.key_value`` becomes ``past.0.key`` and
    ``past.0.value``; other names get ``.key`` and ``.value`` after them. A cache that attention reads as key and as
    value otherwise, such as a latent one, stays as it is.

    One of linear states: by a Split, or Slices that leave nothing out, each part reshaped to its state; and a Concat of
    the new states, flattened, is written back. ``past.conv+ssm.0`` becomes ``past.conv.0`` and ``past.ssm.0``; other
    names get a number after them. A variable that starts neither as one number throughout nor as a Concat of its parts
    makes states that start as parts of the same tensor. OpenVINO's CPU plugin (2026.4.1) does not compile that.

    Options:
        only: ``kv`` or ``linear`` to unpack caches of that kind alone.

    Shapes:
        kv ``[batch, heads, sequence, key_dim + value_dim]`` to ``[batch, heads, sequence, key_dim]`` and ``[batch,
        heads, sequence, value_dim]``; or without an axis of 2; in any order. States ``[batch, 1, size]`` to ``[batch,
        ...]`` each, as it is reshaped.

    Before:
        past.0.key_value -> Concat(., Concat(key, value)) -> Split -> attention
        conv+recurrent -> VariadicSplit -> Reshape -> convolution, Reshape -> update
    After:
        past.0.key -> Concat(., key) -> attention
        past.0.value -> Concat(., value) -> attention
        conv -> convolution, recurrent -> update
    """

    name = "unpack"

    only: Literal["all", "kv", "linear"] = "all"

    def run(self, model: Model) -> Done | Skipped:
        inventory = analyze_caches(model)
        packed = packed_caches(inventory) if self.only != "linear" else ()
        flat = flat_caches(model, inventory) if self.only != "kv" else {}
        if not packed and not flat:
            held = {"kv": "key and value", "linear": "several states"}
            return Skipped(f"no cache holds {held.get(self.only, ' or '.join(held.values()))}")
        rewriter = model.rewriter()
        made, notes = unpack_keys_with_values(model, rewriter, packed)
        count = sum(len(parts) for parts in made.values()) + sum(len(one.states) for one in flat.values())
        unpack_states(model, rewriter, flat)
        finish(model, rewriter, made | {cache.name: [] for cache in flat})
        return Done({"caches unpacked": len(made) + len(flat), "caches made": count}, tuple(notes))
