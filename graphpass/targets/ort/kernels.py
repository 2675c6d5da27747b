"""Compare attention with what a provider's kernel of GroupQueryAttention does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from graphpass.ir.graph import Node
from graphpass.ir.operators import NEW_TOKENS, quantized_bits
from graphpass.ir.pattern import Miss
from graphpass.targets.ort.providers import Feature, Provider

if TYPE_CHECKING:
    from graphpass.analysis.equations.grouped_query import GroupedQuery

_WORDS: dict[Feature, str] = {
    "padding": "a bias of padding",
    "mask": "a mask as a bias",
    "rotation": "a rotation",
    "window": "a window",
    "softcap": "a soft cap",
    "sinks": "attention sinks",
    "packing": "query, key and value in one",
    "integers": "caches in integers",
    "unlike scales": "scales of unlike kinds for keys and values",
    "counts": "numbers of new tokens",
}


def why_left(one: GroupedQuery, provider: Provider, *, any_padding: bool) -> Miss | None:
    """Return why decomposed attention stays as it is, if the kernel lacks something.

    Args:
        one: The attention. A rotation may stay outside.
        provider: Has the kernel.
        any_padding: Whether padding may stand on either side, where counts of tokens do not tell it.
    """
    mask, node, does = one.mask, one.attention.node, provider.attention
    if isinstance(mask, Miss):
        return None if "mask" in does else Miss(node, f"its mask would be a bias: {mask.reason}")
    if any_padding and mask.is_padded and "padding" not in does:
        return Miss(node, "its padding would be a bias; padding=right counts tokens instead")
    wanted: dict[Feature, object] = {
        "window": mask.window is not None,
        "softcap": one.softcap,
        "sinks": one.attention.sink is not None,
    }
    lacks = _lack(wanted, provider)
    return None if lacks is None else Miss(node, lacks)


def why_refused(node: Node, provider: Provider) -> str | None:
    """Return what a GroupQueryAttention has that the kernel lacks."""
    given = node.attributes
    adds = node.input(10) is not None
    used: dict[Feature, object] = {
        "mask": adds and not given.get("causal", 1),
        "padding": adds,
        "rotation": given.get("do_rotary", 0),
        "window": given.get("local_window_size", -1) > 0,
        "softcap": given.get("softcap", 0.0),
        "sinks": node.input(11) is not None or given.get("smooth_softmax", 0),
        "packing": node.input(1) is None,
        "integers": quantized_bits(node) is not None,
        "counts": node.input(NEW_TOKENS) is not None,
        "unlike scales": given.get("k_quant_type", b"NONE") != given.get("v_quant_type", b"NONE"),
    }
    return _lack(used, provider)


def why_no_counts(node: Node, provider: Provider) -> str | None:
    """Return why a GroupQueryAttention is not to be told the new tokens of each row."""
    if "counts" not in provider.attention:
        return f"{provider.name} has no kernel for {_WORDS['counts']}"
    return None if node.attributes.get("causal", 1) else "the kernel refuses their numbers beside a mask as a bias"


def _lack(used: Mapping[Feature, object], provider: Provider) -> str | None:
    for feature, is_used in used.items():
        if is_used and feature not in provider.attention:
            return f"it has {_WORDS[feature]}, for which {provider.name} has no kernel"
    return None
