"""Compare attention with the features that a kernel of GroupQueryAttention lacks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

from graphpass.ir.graph import Node
from graphpass.ir.miss import Miss
from graphpass.ir.operators import NEW_TOKENS, quantized_bits

if TYPE_CHECKING:
    from graphpass.analysis.equations.grouped_query import GroupedQuery

#: Abilities that decomposed attention may need: add a bias of padding; take a bias in place of causality; rotate query
#: and key; keep to a window; cap scores; add sinks.
FusedFeature: TypeAlias = Literal["padding", "mask", "rotation", "window", "softcap", "sinks"]

#: Further abilities: accept query, key and value in one tensor; store caches in integers, with scales of different
#: kinds for keys and values; accept the number of new tokens of each row.
Feature: TypeAlias = Literal[FusedFeature, "packing", "integers", "mixed scales", "counts"]

_WORDS: dict[Feature, str] = {
    "padding": "a bias of padding",
    "mask": "a mask as a bias",
    "rotation": "a rotation",
    "window": "a window",
    "softcap": "a soft cap",
    "sinks": "attention sinks",
    "packing": "query, key and value in one",
    "integers": "caches in integers",
    "mixed scales": "scales of different kinds for keys and values",
    "counts": "numbers of new tokens",
}


def why_left(group: GroupedQuery, lacks: Collection[Feature], *, any_padding: bool) -> Miss | None:
    """Return why decomposed attention stays unchanged, if the kernel lacks something.

    Args:
        group: The attention. A rotation may stay outside.
        lacks: Features that the kernel lacks.
        any_padding: Whether padding may stand on either side, if counts of tokens do not show it.
    """
    mask, node = group.mask, group.attention.node
    if isinstance(mask, Miss):
        return Miss(node, f"its mask would be a bias: {mask.reason}") if "mask" in lacks else None
    if any_padding and mask.is_padded and "padding" in lacks:
        return Miss(node, "its padding would be a bias; padding=right counts tokens instead")
    wanted: dict[Feature, object] = {
        "window": mask.window is not None,
        "softcap": group.softcap,
        "sinks": group.attention.sink is not None,
    }
    reason = _lacked(wanted, lacks)
    return None if reason is None else Miss(node, reason)


def why_refused(node: Node, lacks: Collection[Feature]) -> str | None:
    """Return what a GroupQueryAttention has that the kernel lacks."""
    attributes = node.attributes
    adds = node.input(10) is not None
    used: dict[Feature, object] = {
        "mask": adds and not attributes.get("causal", 1),
        "padding": adds,
        "rotation": attributes.get("do_rotary", 0),
        "window": attributes.get("local_window_size", -1) > 0,
        "softcap": attributes.get("softcap", 0.0),
        "sinks": node.input(11) is not None or attributes.get("smooth_softmax", 0),
        "packing": node.input(1) is None,
        "integers": quantized_bits(node) is not None,
        "counts": node.input(NEW_TOKENS) is not None,
        "mixed scales": attributes.get("k_quant_type", b"NONE") != attributes.get("v_quant_type", b"NONE"),
    }
    return _lacked(used, lacks)


def _lacked(used: Mapping[Feature, object], lacks: Collection[Feature]) -> str | None:
    missing = (feature for feature, is_used in used.items() if is_used and feature in lacks)
    return next((f"it has {_WORDS[feature]}, which the provider's kernel lacks" for feature in missing), None)
