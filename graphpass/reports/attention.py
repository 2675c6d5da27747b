"""Groups of equal attention blocks, and their descriptions as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from graphpass.analysis.attention.mask import AttentionMask
from graphpass.analysis.equations.angles import Angles
from graphpass.analysis.equations.rotation import QUERY, ROW
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.text import expression_text
from graphpass.ir.cache import AttentionBlock, Inventory
from graphpass.ir.miss import Miss
from graphpass.ir.model import Model
from graphpass.reports.text import layers_in_words

#: Passes that fuse decomposed attention, in OpenVINO IR and in ONNX.
FUSE, FUSE_GROUPED = "fuse-attention", "fuse-group-query-attention"


@dataclass(frozen=True, slots=True)
class AttentionGroup:
    """Attention blocks that differ only in names and layers.

    Attributes:
        blocks: The blocks, in execution order.
        is_cross: Whether the blocks read caches of kind ``cross``.
    """

    blocks: tuple[AttentionBlock, ...]
    is_cross: bool

    @property
    def layers(self) -> str:
        """Return ``layers 0-3``."""
        return layers_in_words(block.layer for block in self.blocks)


def group_attention(inventory: Inventory) -> tuple[AttentionGroup, ...]:
    """Return groups of equal attention blocks, in the order of their first blocks."""
    cross = {cache.name for cache in inventory.of_kind("cross")}
    groups: dict[object, list[AttentionBlock]] = {}
    for block in inventory.attention:
        form = replace(block, node="", key=None, value=None, layer=None, reason=None)
        groups.setdefault((form, block.key in cross, block.layer is None), []).append(block)
    return tuple(AttentionGroup(tuple(blocks), blocks[0].key in cross) for blocks in groups.values())


def attention_in_words(block: AttentionBlock, *, is_cross: bool = False) -> str:
    """Return a description: ``4 heads over 2, scale 0.25, mask causal+input, window 8 in the mask``.

    Args:
        block: The attention block; unknown parts are named as such, absent ones are omitted.
        is_cross: Whether the block reads caches of kind ``cross``.
    """
    heads = "heads unknown" if block.heads is None else f"{block.heads} heads"
    if block.key_heads not in {None, block.heads}:
        heads += f" over {block.key_heads}"
    parts = ["cross", heads] if is_cross else [heads]
    if block.scale is None:
        parts.append("scale unknown")
    else:
        factors = f" ({' * '.join(f'{factor:g}' for factor in block.factors)})" if block.factors else ""
        parts.append(f"scale {block.scale:g}{factors}")
    if block.mask is None:
        parts.append("mask unknown")
    else:
        parts.append(f"mask {'+'.join(block.mask)}" if block.mask else "no mask")
    if block.softcap is not None:
        parts.append(f"softcap {block.softcap:g}")
    if block.sinks:
        parts.append("sinks")
    if block.window_in is not None:
        size = "" if block.window is None else f" {block.window}"
        parts.append(f"window{size} in the {block.window_in}")
    return ", ".join(parts)


def mask_in_words(mask: AttentionMask) -> list[str]:
    """Return an effective mask in lines, for row ``b``, head ``h``, query ``q``, key ``k``."""
    lines = [f"attends to k if {expression_text(mask.visible)}"]
    if mask.bias.as_number != 0:
        lines.append(f"adds {expression_text(mask.bias)}")
    return [*lines, *(f"unknown: {miss}" for miss in mask.misses)]


def positions_in_words(angles: Angles) -> list[str]:
    """Return positions in lines, for row ``b`` and query ``q``."""
    own = {ROW: ex.index("b", ROW.args[1]), QUERY: ex.index("q", QUERY.args[1])}
    lines = [f"reads position {expression_text(ex.substitute(part, own))}" for part in angles.positions()]
    return [*lines, *(f"unknown: {miss}" for miss in angles.misses)]


def form_in_words(block: AttentionBlock) -> str:
    """Return the form of an attention block: ``fused ScaledDotProductAttention``."""
    if block.form != "decomposed":
        return f"fused {block.form}"
    return "decomposed, fusable" if block.fusable else f"decomposed, not fusable: {block.reason}"


def grouped_query_misses(model: Model) -> dict[str, Miss | None]:
    """Return the miss of `fuse-group-query-attention` at each decomposed attention block, by node.

    The value is ``None`` for blocks that the pass fuses. OpenVINO IR and encoders have no entries.
    """
    from graphpass.analysis.caches.encoders import is_encoder

    if model.dialect != "onnx" or model.analysis(is_encoder):
        return {}
    from graphpass.analysis.equations.grouped_query import find_grouped_queries

    groups = model.analysis(find_grouped_queries)
    return {name: group if isinstance(group, Miss) else group.wants_padding for name, group in groups.items()}


def grouped_query_in_words(misses: Mapping[str, Miss | None]) -> list[str]:
    """Return lines with the numbers of blocks that `fuse-group-query-attention` fuses and does not, with reasons.

    Args:
        misses: The result of `grouped_query_misses`.
    """
    groups: dict[str | None, list[Miss | None]] = {}
    for miss in misses.values():
        groups.setdefault(None if miss is None else miss.reason, []).append(miss)
    return [
        f"  {FUSE_GROUPED} fuses {len(group)}"
        if reason is None
        else f"  {FUSE_GROUPED} does not fuse {len(group)}: {group[0]}"
        for reason, group in groups.items()
    ]
