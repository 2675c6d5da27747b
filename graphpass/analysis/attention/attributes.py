"""Describe the heads, scale, mask and window of each attention block."""

from __future__ import annotations

from collections.abc import Iterable

from graphpass.analysis.attention.axis_trace import BHDL, BHLD, Labels, TraceStep, before
from graphpass.analysis.attention.effective_mask import attention_mask
from graphpass.analysis.attention.find import Scores, find_attention, read_scores
from graphpass.analysis.attention.operands import scores_product, weighted_value
from graphpass.analysis.attention.operators import Heads, operator_heads, operator_scaling, operator_sinks
from graphpass.analysis.attention.scales import Scaling, scores_scaling
from graphpass.analysis.attention.types import Attention
from graphpass.analysis.symbolic.elements import Elements
from graphpass.ir.cache import AttentionBlock
from graphpass.ir.graph import Graph, Value
from graphpass.ir.model import Model
from graphpass.ir.operators import ARITHMETIC, MOVES, stores_window
from graphpass.ir.values import fixed_size, multiplies_matrices
from graphpass.progress import counting

#: Maximum number of operators to search, because heads are copied within their layer.
_LIMIT = 24


def attention_details(model: Model, elements: Elements) -> tuple[AttentionBlock, ...]:
    """Return the attributes of all attention blocks, in the order of `find_attention`; caches are omitted.

    Args:
        model: The model.
        elements: Symbolic elements of its graph, in lengths of the step.
    """
    with counting("describing attention", model.analysis(find_attention), "blocks") as blocks:
        return tuple(_described(model.graph, elements, attention) for attention in blocks)


def _described(graph: Graph, elements: Elements, attention: Attention) -> AttentionBlock:
    node, scaling, sinks = attention.node, Scaling(None), None
    mask = attention_mask(elements, attention)
    if attention.is_fused:
        heads = _operator_heads(graph, attention)
        scaling, sinks = operator_scaling(graph, node, heads.head_dim), operator_sinks(node)
    else:
        heads, scores = _heads(graph, attention), read_scores(graph, node)
        if isinstance(scores, Scores):
            scaling, sinks = scores_scaling(graph, scores), scores.sink is not None or attention.sink is not None
    return AttentionBlock(
        node=node.name,
        form=node.op if attention.is_fused else "decomposed",
        fusable=attention.miss is None,
        reason=None if attention.miss is None else str(attention.miss),
        **heads._asdict(),
        **scaling._asdict(),
        mask=mask.parts,
        sinks=sinks,
        window=mask.window,
        window_in=None if mask.window is None else "state" if stores_window(node) else "mask",
    )


def _operator_heads(graph: Graph, attention: Attention) -> Heads:
    heads = operator_heads(attention.node)
    if attention.node.op != "ScaledDotProductAttention":
        return heads
    # ScaledDotProductAttention does not group heads: key and value have as many heads as the query, or 1.
    operands = (attention.query, attention.key, attention.value)
    known = heads.heads or _most(_heads_of(graph, operand) for operand in operands)
    return heads._replace(
        heads=known or _heads_of_projection(graph, attention, heads.value_head_dim),
        key_heads=_before_copies(graph, attention.key, BHLD, heads.head_dim),
    )


def _heads(graph: Graph, attention: Attention) -> Heads:
    product, value = scores_product(graph, attention.node), weighted_value(graph, attention.node)
    if product is None:
        return Heads()
    query, key = product.inputs
    labels = BHLD if product.attributes["transpose_b"] else BHDL
    head_dim = fixed_size(query, -1) or fixed_size(key, labels.index("head_dim") - 4)
    value_head_dim = fixed_size(value, -1)
    heads = _most(_heads_of(graph, operand) for operand in (query, product.outputs[0], key, value))
    return Heads(
        heads or _heads_of_projection(graph, attention, value_head_dim),
        _before_copies(graph, key, labels, head_dim),
        head_dim,
        value_head_dim,
    )


def _most(sizes: Iterable[int | None]) -> int | None:
    """Return the largest number of heads; ``None`` if 1, which may be a shared head."""
    most = max((size for size in sizes if size is not None), default=1)
    return most if most > 1 else None


def _heads_of(graph: Graph, value: Value | None) -> int | None:
    """Return the size of the heads axis, looking through operators on rank 3."""
    if value is None:
        return None
    whole = graph.look_through(value, lambda node: node.outputs[0].rank == 3 and node.op in MOVES | ARITHMETIC)
    return fixed_size(whole, 1) if whole.rank == 4 else None


def _before_copies(graph: Graph, key: Value | None, labels: Labels, head_dim: int | None) -> int | None:
    """Return the number of kv heads, before they are copied for the query heads."""
    if key is not None and key.rank == 3:
        labels = ("rows", *labels[2:])
    heads: int | None = None
    for _ in range(_LIMIT):
        if key is None or (key.rank is not None and key.rank != len(labels)):
            break
        if "heads" in labels:
            size = fixed_size(key, labels.index("heads"))
            # If the axis is split into heads and copies, only the axis of heads counts.
            heads = size if size is not None or len(labels) > 4 else heads
        elif ("heads", "head_dim") in labels and heads is None and head_dim is not None:
            width = fixed_size(key, labels.index(("heads", "head_dim")))
            heads = width // head_dim if width is not None and width % head_dim == 0 else None
        steps = [step for step in before(graph, key, labels) if step.passed is None or step.passed.kind == "arithmetic"]
        # Cosines and sines of rotary embedding have one head for all heads.
        content = steps if len(steps) == 1 else [step for step in steps if not _is_of_one_head(step)]
        if not content:
            break
        key, labels = content[0].value, content[0].labels
    return heads


def _is_of_one_head(step: TraceStep) -> bool:
    return "heads" in step.labels and fixed_size(step.value, step.labels.index("heads")) == 1


def _heads_of_projection(graph: Graph, attention: Attention, value_head_dim: int | None) -> int | None:
    """Return the number of heads by the width of the next product with weights."""
    if attention.miss is not None or value_head_dim is None:
        return None
    value = attention.output
    for _ in range(_LIMIT):
        uses = graph.uses(value)
        if len(uses) != 1:
            return None
        node, port = uses[0].node, uses[0].port
        if multiplies_matrices(node) and port == 0 and not node.attributes["transpose_a"]:
            width = fixed_size(node.inputs[1], -1 if node.attributes["transpose_b"] else -2)
            return width // value_head_dim if width is not None and width % value_head_dim == 0 else None
        if node.op not in MOVES | {"Multiply"}:
            return None
        value = node.outputs[0]
    return None
