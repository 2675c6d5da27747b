"""Caches that transformers.js feeds to a decoder, by its configuration.

Source: transformers.js 4.3.1, ``src/configs.js`` (`getCacheNames`), ``src/models/registry.js`` (classes by type), and
``src/models/modeling_utils.js`` (`addPastKeyValues`, `resolveCacheShape`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

#: Keys of the number of layers in configurations, by type; ``num_hidden_layers`` for all other types.
_LAYERS = {
    **dict.fromkeys(("bloom", "codegen", "gpt2", "gpt_bigcode", "gptj", "jais"), "n_layer"),
    **dict.fromkeys(("exaone", "gpt_neo"), "num_layers"),
    "mpt": "n_layers",
    "openelm": "num_transformer_layers",
}

#: Types with a decoder in one file, which reads token ids and has keys and values in each layer.
_DENSE = frozenset(
    (
        *_LAYERS,
        *("afmoe", "apertus", "arcee", "cohere", "cohere2", "deepseek_v3", "ernie4_5", "falcon", "gemma", "gemma2"),
        *("gemma3_text", "glm", "glm_moe_dsa", "gpt_neox", "gpt_oss", "granite", "helium", "hunyuan_v1_dense"),
        *("llama", "llama4_text", "ministral", "ministral3", "mistral", "mistral4", "mobilellm", "modernbert-decoder"),
        *("nanochat", "olmo", "olmo2", "olmo3", "opt", "phi", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe"),
        *("smollm3", "solar_open", "stablelm", "starcoder2", "vaultgemma", "youtu"),
    )
)

#: Types with linear caches in layers without attention, and the name of the recurrent state.
_STATES: Mapping[str, Literal["", "recurrent", "ssm"]] = {
    **dict.fromkeys(("lfm2", "lfm2_moe"), ""),
    **dict.fromkeys(("qwen3_next",), "recurrent"),
    **dict.fromkeys(("falcon_h1", "granitemoehybrid", "nemotron_h"), "ssm"),
}

_KEYS_AND_VALUES = frozenset({"key", "value"})

#: Names of layers in types with a state ``ssm``; transformers.js feeds no caches for other names of transformers 5.
_SSM_LAYERS = frozenset({"attention", "mamba"})

_KEPT: Mapping[str, frozenset[str]] = {
    "full_attention": _KEYS_AND_VALUES,
    "attention": _KEYS_AND_VALUES,
    "conv": frozenset({"conv"}),
    "linear_attention": frozenset({"conv", "recurrent"}),
    "mamba": frozenset({"conv", "recurrent"}),
}


@dataclass(frozen=True, slots=True)
class Caches:
    """The caches of a type.

    Attributes:
        layers: Roles of the caches in each layer with caches, by the layer's number.
        recurrent: Name of recurrent states: ``"recurrent"`` or ``"ssm"``.
    """

    layers: Mapping[int, frozenset[str]]
    recurrent: str = "recurrent"


def configured_caches(config: Mapping[str, Any]) -> Caches | None:
    """Return the caches of a configuration; ``None`` unless it is a one-file decoder."""
    kind = str(config.get("model_type"))
    if kind in _DENSE and not config.get("multi_query"):
        count = config.get(_LAYERS.get(kind, "num_hidden_layers"))
        return Caches(dict.fromkeys(range(count), _KEYS_AND_VALUES)) if isinstance(count, int) else None
    if kind not in _STATES:
        return None
    kinds = config.get("layer_types") or config.get("layers_block_type")
    if isinstance(kinds, list):
        known = _KEPT.keys() & _SSM_LAYERS if _STATES[kind] == "ssm" else _KEPT.keys()
        kept = {layer: _KEPT[name] for layer, name in enumerate(kinds) if name in known}
    elif _STATES[kind] == "ssm" and isinstance(count := config.get("num_hidden_layers"), int):
        kept = dict.fromkeys(range(count), _KEYS_AND_VALUES | _KEPT["mamba"])
    else:
        return None
    return Caches(kept, _STATES[kind] or "recurrent")


def like(layers: Sequence[frozenset[str]]) -> dict[str, Any] | None:
    """Return the configuration of a type with these caches; ``None`` without such a type.

    Args:
        layers: Roles of the caches in each layer with caches.
    """
    roles = set(layers)
    if roles == {_KEYS_AND_VALUES}:
        return {"model_type": "llama", "num_hidden_layers": len(layers)}
    if roles == {_KEYS_AND_VALUES | _KEPT["mamba"]}:
        return {"model_type": "falcon_h1", "num_hidden_layers": len(layers)}
    for kind, other in (("lfm2", "conv"), ("qwen3_next", "linear_attention")):
        if roles == {_KEYS_AND_VALUES, _KEPT[other]}:
            names = ["full_attention" if roles == _KEYS_AND_VALUES else other for roles in layers]
            return {"model_type": kind, "num_hidden_layers": len(layers), "layer_types": names}
    return None
