"""What the contracts of OpenVINO's plugins share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.analysis.attention.find import find_attention
from graphpass.targets.chain import PatternBreakError
from graphpass.targets.finding import Finding, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphpass.analysis.attention.types import Attention
    from graphpass.ir.cache import AttentionBlock, Inventory
    from graphpass.ir.graph import Graph
    from graphpass.ir.model import Model

__all__ = ["attention_findings", "failing_branches", "layer_of", "not_openvino", "require_fused"]


def not_openvino(model: Model, target: str) -> tuple[Finding, ...] | None:
    """The findings on a model that is not OpenVINO IR; ``None`` where it is."""
    if model.dialect == "openvino":
        return None
    reason = f"{target} takes OpenVINO IR: run graphpass convert first"
    return (Finding("model", str(model.path), "refused", reason=reason),)


def layer_of(inventory: Inventory, block: AttentionBlock) -> int | None:
    """The layer of the caches that an attention reads."""
    return next((cache.layer for cache in inventory.caches if cache.name in {block.key, block.value}), None)


def require_fused(attention: Attention) -> None:
    """Refuse attention that is no ScaledDotProductAttention.

    Raises:
        PatternBreakError: It is another operator, or decomposed; then told with what to do, or why that does not help.
    """
    op = attention.node.op
    if op == "Softmax":
        cure = attention.miss or "run fuse-attention"
        raise PatternBreakError(attention.node, f"it is decomposed around a Softmax: {cure}")
    if op != "ScaledDotProductAttention":
        raise PatternBreakError(attention.node, f"{op} is not looked for")


def attention_findings(
    model: Model,
    inventory: Inventory,
    check: Callable[[Graph, Attention], None],
    source: str,
    otherwise: Verdict = "not fused",
) -> tuple[Finding, ...]:
    """One finding for each place where attention is computed.

    Args:
        model: The model.
        inventory: Its inventory.
        check: Raises `PatternBreakError` where an attention over a growing cache is not what the runtime fuses.
        source: Where the runtime has its rule.
        otherwise: What becomes of attention that it does not fuse.
    """
    own = {attention.node.name: attention for attention in model.analysis(find_attention)}
    kinds = {cache.name: cache.kind for cache in inventory.caches}
    found = []
    for block in inventory.attention:
        layer = layer_of(inventory, block)
        read = {kinds[name] for name in (block.key, block.value) if name is not None}
        if "kv" not in read:
            reason = "it reads the encoder's keys and values" if "cross" in read else "it reads no growing cache"
            found.append(Finding("attention", block.node, "plain", layer, reason=reason))
            continue
        attention = own.get(block.node)
        if attention is None:
            reason = "it is in the body of a loop or branch"
            found.append(Finding("attention", block.node, otherwise, layer, block.node, reason, source))
            continue
        try:
            check(model.graph, attention)
        except PatternBreakError as broken:
            found.append(Finding("attention", block.node, otherwise, layer, broken.node.name, broken.reason, source))
        else:
            found.append(Finding("attention", block.node, "fused", layer))
    return tuple(found)


def failing_branches(model: Model, source: str) -> tuple[Finding, ...]:
    """Ifs whose outputs have no fixed rank, which the CPU plugin does not compile."""
    return tuple(
        Finding(
            "model", str(model.path), "refused", node=node.name, reason="it is an If of dynamic rank", source=source
        )
        for node in model.graph.of_op("If")
        if any(value.rank is None for value in node.outputs)
    )
