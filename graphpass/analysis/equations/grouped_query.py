"""Describe attention over growing caches by the operands of GroupQueryAttention.

The operator appends to its caches, shares key and value heads among query heads, applies a causal mask with a window,
and rotates query and key. Source of its limits: onnxruntime 1.31, ``group_query_attention_helper.h``, and trials.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from graphpass.analysis.attention.find import find_attention, match
from graphpass.analysis.attention.mask import AttentionMask, plain_mask
from graphpass.analysis.attention.types import OPERATORS, Attention, Mask, Scale
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.masks import find_elements, find_masks
from graphpass.analysis.equations.activations import find_activations
from graphpass.analysis.equations.head_sizes import HEADS_OF, PAIRS_OF, ROTATED_HEADS_OF
from graphpass.analysis.equations.rotation import Rotation, find_rotation
from graphpass.analysis.symbolic.elements import UnknownError
from graphpass.analysis.symbolic.expressions import ZERO, number
from graphpass.analysis.symbolic.places import digits, index_along
from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.ir.cache import BHSD, Cache
from graphpass.ir.graph import Node, Value
from graphpass.ir.miss import Miss, MissError
from graphpass.ir.model import Model
from graphpass.ir.operators import LAYOUT
from graphpass.ir.values import fixed_size, is_idle, known_elements
from graphpass.progress import counting


@dataclass(frozen=True, slots=True)
class Appended:
    """A cache with appended entries, as attention reads it.

    Attributes:
        cache: The cache.
        past: ``[batch, heads, past, head_dim]``.
        new: ``[batch, heads, length, head_dim]``.
        whole: The concatenation of ``past`` and ``new``, the cache's present.
        copies: Values after ``whole`` up to the operand of the product, which repeat heads.
    """

    cache: Cache
    past: Value
    new: Value
    whole: Value
    copies: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class GroupedQuery:
    """An attention block, described by the operands of GroupQueryAttention.

    Attributes:
        attention: The attention; ``scale`` and ``mask`` combine its scales and its masks.
        query: ``[batch, heads, length, head_dim]``, before all scales.
        key: The cache of keys.
        value: The cache of values.
        heads: Number of query heads.
        key_heads: Number of key and value heads.
        head_dim: Size of a head of query and key.
        value_dim: Size of a head of value, not more than ``head_dim``.
        scale: Factor of the scores.
        softcap: Soft cap of the scores; 0 for none.
        mask: The combined mask, or the miss if it does more than exclude positions.
        rotations: Rotations of query and new keys by equal angles; ``None`` if not found.
    """

    attention: Attention
    query: Value
    key: Appended
    value: Appended
    heads: int
    key_heads: int
    head_dim: int
    value_dim: int
    scale: float
    softcap: float
    mask: AttentionMask | Miss
    rotations: tuple[Rotation, Rotation] | None

    @property
    def wants_padding(self) -> Miss | None:
        """Return the miss if values must be padded to the size of keys."""
        if self.value_dim == self.head_dim:
            return None
        sizes = f"{self.head_dim} and {self.value_dim}; fuse-group-query-attention{{pad-values=true}} pads values"
        return Miss(self.attention.node, f"GroupQueryAttention requires keys and values of one size, not {sizes}")

    @property
    def rotates_inside(self) -> bool:
        """Return whether the operator's kernels support the rotations."""
        pair = self.rotations
        return pair is not None and not self.head_dim % ROTATED_HEADS_OF and not (pair[0].size // 2) % PAIRS_OF


def find_grouped_queries(model: Model) -> dict[str, GroupedQuery | Miss]:
    """Return decomposed attention and ONNX's Attention, or misses, by name in execution order."""
    masked = [
        (attention, mask)
        for attention, mask in zip(model.analysis(find_attention), model.analysis(find_masks), strict=True)
        if attention.node.op == "Attention" or not attention.is_fused
    ]
    with counting("reading attention", masked, "blocks") as blocks:
        return {attention.node.name: _found(model, attention, plain_mask(mask)) for attention, mask in blocks}


def _found(model: Model, attention: Attention, mask: AttentionMask | Miss) -> GroupedQuery | Miss:
    node = attention.node
    try:
        read = _operator(attention) if attention.is_fused else match(model.graph, node, loosely=True)
        return read if isinstance(read, Miss) else _read(model, read, mask)
    except MissError as error:
        return error.miss
    except UnknownError as error:
        return Miss(node, str(error))


def _operator(attention: Attention) -> Attention:
    """Return ONNX's Attention in the form of decomposed attention.

    Raises:
        MissError: It uses further inputs or another causal mask, see onnx.defs, Attention-23 and -24.
    """
    node = attention.node
    mask, *further = [node.input(port) for port in range(3, 7)]
    if any(further):
        raise MissError(node, "it has input past_key, past_value or nonpad_kv_seqlen")
    if OPERATORS[node.op].hides_later(node):
        raise MissError(node, "its causal mask ignores the past: query q attends to keys up to q")
    if any(operand is None or operand.rank != 4 for operand in (attention.query, attention.key, attention.value)):
        raise MissError(node, "expected operands of rank 4 with an axis of heads")
    return replace(attention, masks=() if mask is None else (Mask.of_operator(mask),))


def _read(model: Model, attention: Attention, mask: AttentionMask | Miss) -> GroupedQuery:
    query, node = attention.query, attention.node
    assert query is not None
    key, value = (_appended(model, node, operand) for operand in (attention.key, attention.value))
    key_heads, head_dim, value_dim = _sizes(node, key, value)
    shape = model.analysis(infer_sizes).shape(query)
    heads = shape[1].as_number if shape is not None else None
    if not isinstance(heads, int) or heads % key_heads:
        raise MissError(node, "its number of heads is unknown, or not a multiple of its key heads")
    _check_copies(model, node, key, heads, is_transposed=attention.key_is_transposed)
    _check_copies(model, node, value, heads)
    types = {query.element_type, key.new.element_type, value.new.element_type, key.past.element_type}
    if len(types) > 1:
        raise MissError(node, f"GroupQueryAttention requires operands of one type, not {', '.join(sorted(types))}")
    scale, softcap = _scaling(model, attention, head_dim)
    _check_sink(attention, heads)
    return GroupedQuery(
        attention,
        query,
        key,
        value,
        heads,
        key_heads,
        head_dim,
        value_dim,
        scale,
        softcap,
        mask,
        _rotations(model, query, key.new, head_dim),
    )


def _appended(model: Model, node: Node, operand: Value | None) -> Appended:
    """Return the cache whose heads ``operand`` repeats or reads.

    Raises:
        MissError: The operand is not a cache that a Concat appends to.
    """
    graph = model.graph
    assert operand is not None
    copies = [operand]
    while graph.producer(copies[0]).op in LAYOUT:
        copies.insert(0, graph.producer(copies[0]).source())
    concat = graph.producer(copies[0])
    past = concat.input(0)
    if concat.op == "Concat" and concat.attributes["axis"] == 3 and operand.rank == 4:
        raise MissError(node, "its keys are [batch, heads, head_dim, positions], expected head_dim last")
    if concat.op != "Concat" or concat.attributes["axis"] != 2 or len(concat.inputs) != 2 or past is None:
        raise MissError(concat, f"its operand {operand.name} is not a past with new entries appended")
    source = graph.look_through(past, is_idle)
    caches = (cache for cache in analyze_caches(model).of_kind("kv") if graph.reads[cache.read].outputs[0] == source)
    cache = next(caches, None)
    if cache is None or cache.axes != BHSD:
        raise MissError(concat, f"its operand {operand.name} is not a past [batch, heads, positions, head_dim]")
    if cache.write is None or graph.look_through(graph.writes[cache.write].source(), is_idle) != copies[0]:
        raise MissError(node, f"cache {cache.name} is written from another value than attention reads")
    return Appended(cache, source, concat.source(1), copies[0], tuple(copies[1:]))


def _sizes(node: Node, key: Appended, value: Appended) -> tuple[int, int, int]:
    """Return the number of key and value heads, and the sizes of both.

    Raises:
        MissError: They are unknown, or GroupQueryAttention does not support them.
    """
    counts = {fixed_size(cache.past, 1) for cache in (key, value)}
    size, value_size = (fixed_size(cache.past, 3) for cache in (key, value))
    heads = counts.pop()
    if counts:
        raise MissError(node, "GroupQueryAttention requires as many value heads as key heads")
    if heads is None or size is None or value_size is None:
        raise MissError(node, f"the number or size of heads of cache {key.cache.name} is not known")
    if value_size > size:
        raise MissError(node, f"GroupQueryAttention requires values of at most {size}, as its keys, not {value_size}")
    if size % HEADS_OF:
        raise MissError(node, f"GroupQueryAttention requires a head size divisible by {HEADS_OF}, not {size}")
    if key.past.element_type != value.past.element_type or key.past.element_type not in {"f16", "f32"}:
        types = f"{key.past.element_type} and {value.past.element_type}"
        raise MissError(node, f"GroupQueryAttention requires keys and values of one type, f32 or f16, not {types}")
    return heads, size, value_size


def _check_copies(model: Model, node: Node, cache: Appended, heads: int, *, is_transposed: bool = False) -> None:
    """Check that each head is repeated for consecutive query heads.

    Transposed operands are ``[batch, heads, head_dim, positions]``.

    Raises:
        MissError: It is not.
    """
    if not cache.copies and not is_transposed:
        return
    elements = model.analysis(find_elements).cut(cache.whole, model.analysis(find_activations))
    count = fixed_size(cache.past, 1) or 1
    copied = cache.copies[-1] if cache.copies else cache.whole
    sizes = elements.shape(copied)
    place = tuple(index_along(f"copy {axis}", size) for axis, size in enumerate(sizes))
    # The product broadcasts a single head.
    of_each = {count, heads} if count == 1 or count == heads else {heads}
    if len(place) == 4 and sizes[1].as_number in of_each:
        groups = number(int(sizes[1].as_number or 1) // count)
        rest = place[:1:-1] if is_transposed else place[2:]
        own = place[0], digits(place[1], groups)[0] if count > 1 else ZERO, *rest
        if elements.of(copied, place) is elements.of(cache.whole, own):
            return
    raise MissError(node, f"the heads of cache {cache.cache.name} are not repeated for consecutive query heads")


def _scaling(model: Model, attention: Attention, head_dim: int) -> tuple[float, float]:
    if attention.is_fused:
        attributes = attention.node.attributes
        return attributes.get("scale") or head_dim**-0.5, attributes.get("softcap", 0.0)
    before = _product(model, attention.node, attention.scales)
    if attention.cap_scales is None:
        return before, 0.0
    cap = _product(model, attention.node, attention.cap_scales)
    return before * cap, cap


def _product(model: Model, node: Node, scales: tuple[Scale, ...]) -> float:
    factors = []
    for scale in scales:
        number = scale.value if isinstance(scale.value, float) else _number(model, scale.value)
        if not number or not math.isfinite(number):
            raise MissError(node, f"its scale {scale.name} is computed")
        factors.append(1 / number if scale.divides else number)
    return float(math.prod(factors))


def _number(model: Model, value: Value) -> float | None:
    """Return a factor that is the same constant for all lengths; ``None`` otherwise."""
    elements = model.analysis(find_elements)
    number = elements.of(value, (ZERO,) * len(elements.shape(value))).as_number
    return None if number is None else float(number)


def _check_sink(attention: Attention, heads: int) -> None:
    sink = attention.sink
    if sink is not None and known_elements(sink) != heads:
        raise MissError(
            attention.node, f"its attention sink {sink.name} must have one element for each of {heads} heads"
        )


def _rotations(model: Model, query: Value, key: Value, size: int) -> tuple[Rotation, Rotation] | None:
    rotations = [find_rotation(model, value, size) for value in (query, key)]
    first, second = rotations
    if first is None or second is None or first.signature != second.signature:
        return None
    return first, second
