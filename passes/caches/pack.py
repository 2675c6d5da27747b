"""The pass `pack`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.ir.model import Model
from graphpass.passes.caches.pack_kv import keys_with_values, pack_keys_with_values
from graphpass.passes.caches.pack_linear import layers_of_states, pack_states
from graphpass.passes.caches.packing import finish

#: Measured as for `standardize-layout`.
UNFUSED = "OpenVINO's plugins fuse attention with no packed cache: steps take about 3 times as long"


@dataclass(frozen=True)
class Pack(Pass[Model]):
    """Carry key and value of a layer in one tensor; its linear states likewise.

    Key and value lie side by side along the content. New ones are concatenated before they are appended, and the whole
    is split for attention: ``past.0.key`` and ``past.0.value`` become ``past.0.key_value``.

    Linear states, a window and a recurrent state, lie flat after a sequence of 1, as in vLLM's description of caches:
    ``past.conv.0`` and ``past.ssm.0`` become ``past.conv+ssm.0``. A layer with one state keeps it as it is.

    A step copies packed caches once more, and plugins fuse none of them with attention: this is for runtimes that keep
    one block of memory a layer, as vLLM does.

    Options:
        only: ``kv`` or ``linear`` to pack caches of that kind alone.

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
        UnsupportedError: GP386, a cache is not appended to as it must be, or has no partner that is as it is; GP387, a
            state's size is not fixed, its batch is not its first axis, its earlier states are kept, or the states of a
            layer are of unlike types or reordered apart.
    """

    name = "pack"

    only: Literal["all", "kv", "linear"] = "all"

    def run(self, model: Model) -> Done | Skipped:
        inventory = analyze_caches(model)
        pairs = keys_with_values(inventory) if self.only != "linear" else []
        layers = layers_of_states(inventory) if self.only != "kv" else []
        if not pairs and not layers:
            missing = {"kv": "a key cache and a value cache", "linear": "two linear caches"}
            return Skipped(f"no layer has {missing.get(self.only, ' or '.join(missing.values()))}")
        rewriter = model.rewriter()
        pack_keys_with_values(model, rewriter, pairs)
        pack_states(model, rewriter, layers)
        packed = [cache.name for caches in (*pairs, *layers) for cache in caches]
        finish(model, rewriter, dict.fromkeys(packed, ()))
        notes = (UNFUSED,) if inventory.stateful and pairs else ()
        return Done({"caches packed": len(packed), "caches made": len(pairs) + len(layers)}, notes)
