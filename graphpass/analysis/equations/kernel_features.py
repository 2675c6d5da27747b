"""Check attention for features that a kernel of GroupQueryAttention does not support."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

from graphpass.ir.graph import Node
from graphpass.ir.miss import Miss
from graphpass.ir.operators import NEW_TOKENS, quantized_bits

if TYPE_CHECKING:
    from graphpass.analysis.equations.grouped_query import GroupedQuery

#: Features that decomposed attention may require: a bias for padding, a bias in place of the causal mask, rotary
#: embedding, a window, a soft cap, sinks.
FusedFeature: TypeAlias = Literal["padding", "mask", "rotation", "window", "softcap", "sinks"]

#: Further features: query, key and value in one tensor; caches in integers; scales of different kinds for keys and
#: values; the number of new tokens of each row as an input.
Feature: TypeAlias = Literal[FusedFeature, "packing", "integers", "mixed scales", "counts"]

_WORDS: dict[Feature, str] = {
    "padding": "a bias of padding",
    "mask": "a mask as a bias",
    "rotation": "a rotary embedding",
    "window": "a window",
    "softcap": "a soft cap",
    "sinks": "attention sinks",
    "packing": "query, key and value in one tensor",
    "integers": "caches in integers",
    "mixed scales": "scales of different kinds for keys and values",
    "counts": "the number of new tokens of each row",
}


def why_left(group: GroupedQuery, lacks: Collection[Feature], *, any_padding: bool) -> Miss | None:
    """Return the miss if decomposed attention requires a feature that the kernel lacks.

    Args:
        group: The attention. A rotary embedding can remain a separate operator.
        lacks: Features that the kernel lacks.
        any_padding: Whether padding may be left or right of a row's tokens, so that it requires a bias.
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
    """Return the reason if a GroupQueryAttention uses a feature that the kernel lacks.

    Args:
        node: The GroupQueryAttention.
        lacks: Features that the kernel lacks.
    """
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
