"""Read attention over growing caches in the terms of GroupQueryAttention.

The operator appends to its caches, copies key heads for the query's, hides what comes after the query or before a
window, and rotates query and key. Source of its limits: onnxruntime 1.31, ``group_query_attention_helper.h``, and runs.
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
from graphpass.analysis.equations.rotation import Rotation, find_rotation
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import UnknownError
from graphpass.analysis.symbolic.expressions import ZERO, number
from graphpass.analysis.symbolic.places import digits
from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.ir.cache import BHSD, Cache
from graphpass.ir.graph import Node, Value
from graphpass.ir.miss import Miss, MissError
from graphpass.ir.model import Model
from graphpass.ir.operators import LAYOUT
from graphpass.ir.values import fixed_size, is_idle, known_elements
from graphpass.progress import counting

#: Sizes of heads that its kernels take: multiples of these, with and without rotation.
_HEADS_OF, _ROTATED_HEADS_OF = 8, 16


@dataclass(frozen=True, slots=True)
class Appended:
    """A cache that grows by new entries, as attention reads it.

    Attributes:
        cache: The cache.
        past: ``[batch, heads, past, head_dim]``.
        new: ``[batch, heads, length, head_dim]``.
        whole: Both, one after the other; the cache's present.
        copies: Values up to the operand of the product, made of ``whole`` by copying heads.
    """

    cache: Cache
    past: Value
    new: Value
    whole: Value
    copies: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class GroupedQuery:
    """One attention in the terms of GroupQueryAttention.

    Attributes:
        attention: The attention; its scales and masks are those below.
        query: ``[batch, heads, length, head_dim]``, before all scales.
        key: The cache of keys.
        value: The cache of values.
        heads: Number of query heads.
        key_heads: Number of key and value heads.
        head_dim: Size of a head of query and key.
        value_dim: Size of a head of value, not more than ``head_dim``.
        scale: Factor of the scores.
        softcap: Soft cap of the scores; 0 for none.
        mask: Positions that the masks hide, or the reason that more is in them.
        rotations: Rotations of query and new keys, of equal angles; ``None`` if there are none.
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
        """Return why values have to be padded; ``None`` if they need not."""
        if self.value_dim == self.head_dim:
            return None
        sizes = f"{self.head_dim} and {self.value_dim}; fuse-group-query-attention{{pad-values=true}} pads values"
        return Miss(self.attention.node, f"GroupQueryAttention requires keys and values of one size, not {sizes}")

    @property
    def rotates_inside(self) -> bool:
        """Return whether the operator has kernels for the rotations."""
        pair = self.rotations
        return pair is not None and not self.head_dim % _ROTATED_HEADS_OF and not (pair[0].size // 2) % _HEADS_OF


def find_grouped_queries(model: Model) -> dict[str, GroupedQuery | Miss]:
    """Read decomposed attention and ONNX's own, or reasons to leave it, in execution order."""
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
    """Return what ONNX's Attention does in terms of decomposed attention.

    Raises:
        MissError: It does more, see onnx.defs, Attention-23 and -24.
    """
    node = attention.node
    mask, *further = [node.input(port) for port in range(3, 7)]
    if any(further):
        raise MissError(node, "it takes a past, or numbers of positions, as inputs of its own")
    if OPERATORS[node.op].hides_later(node):
        raise MissError(node, "it counts positions from the first query, and not from the past")
    if any(operand is None or operand.rank != 4 for operand in (attention.query, attention.key, attention.value)):
        raise MissError(node, "its heads are not an axis of its operands")
    return replace(attention, masks=() if mask is None else (Mask.of_operator(mask),))


def _read(model: Model, attention: Attention, mask: AttentionMask | Miss) -> GroupedQuery:
    query, node = attention.query, attention.node
    assert query is not None
    key, value = (_appended(model, node, operand) for operand in (attention.key, attention.value))
    key_heads, head_dim, value_dim = _sizes(node, key, value)
    shape = model.analysis(infer_sizes).shape(query)
    heads = shape[1].as_number if shape is not None else None
    if not isinstance(heads, int) or heads % key_heads:
        raise MissError(node, "the number of its heads is not known")
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
    """Return the cache that ``operand`` copies heads of.

    Raises:
        MissError: It is not a cache that grows by a Concat.
    """
    graph = model.graph
    assert operand is not None
    copies = [operand]
    while graph.producer(copies[0]).op in LAYOUT:
        copies.insert(0, graph.producer(copies[0]).source())
    concat = graph.producer(copies[0])
    past = concat.input(0)
    if concat.op == "Concat" and concat.attributes["axis"] == 3 and operand.rank == 4:
        raise MissError(node, "its keys end with the size of a head, then positions")
    if concat.op != "Concat" or concat.attributes["axis"] != 2 or len(concat.inputs) != 2 or past is None:
        raise MissError(concat, f"its operand {operand.name} is not a past with new entries appended")
    source = graph.look_through(past, is_idle)
    caches = (cache for cache in analyze_caches(model).of_kind("kv") if graph.reads[cache.read].outputs[0] == source)
    cache = next(caches, None)
    if cache is None or cache.axes != BHSD:
        raise MissError(concat, f"its operand {operand.name} is not a past [batch, heads, positions, head_dim]")
    if cache.write is None or graph.look_through(graph.writes[cache.write].source(), is_idle) != copies[0]:
        raise MissError(node, f"cache {cache.name} is not written as it is read")
    return Appended(cache, past, concat.source(1), copies[0], tuple(copies[1:]))


def _sizes(node: Node, key: Appended, value: Appended) -> tuple[int, int, int]:
    """Return the number of key heads, which values have, too, and the sizes of both."""
    counts = {fixed_size(cache.past, 1) for cache in (key, value)}
    size, value_size = (fixed_size(cache.past, 3) for cache in (key, value))
    heads = counts.pop()
    if counts:
        raise MissError(node, "GroupQueryAttention requires as many heads of values as of keys")
    if heads is None or size is None or value_size is None:
        raise MissError(node, f"the number or size of heads of cache {key.cache.name} is not known")
    if value_size > size:
        raise MissError(node, f"GroupQueryAttention requires values of {size}, as its keys, not of {value_size}")
    if size % _HEADS_OF:
        raise MissError(node, f"GroupQueryAttention requires heads of a multiple of {_HEADS_OF}, not {size}")
    if key.past.element_type != value.past.element_type or key.past.element_type not in {"f16", "f32"}:
        types = f"{key.past.element_type} and {value.past.element_type}"
        raise MissError(node, f"GroupQueryAttention requires keys and values of one type, f32 or f16, not {types}")
    return heads, size, value_size


def _check_copies(model: Model, node: Node, cache: Appended, heads: int, *, is_transposed: bool = False) -> None:
    """Check that heads are copied one by one; transposed ones end with (head_dim, sequence)."""
    if not cache.copies and not is_transposed:
        return
    elements = model.analysis(find_elements).cut(cache.whole, model.analysis(find_activations))
    count = fixed_size(cache.past, 1) or 1
    copied = cache.copies[-1] if cache.copies else cache.whole
    place = tuple(ex.index(f"copy {axis}", size) for axis, size in enumerate(elements.shape(copied)))
    # The product copies a single head by itself.
    of_each = {count, heads} if count == 1 or count == heads else {heads}
    if len(place) == 4 and place[1].args[1].as_number in of_each:
        groups = number(int(place[1].args[1].as_number or 1) // count)
        rest = place[:1:-1] if is_transposed else place[2:]
        own = place[0], digits(place[1], groups)[0] if count > 1 else ZERO, *rest
        if elements.of(copied, place) is elements.of(cache.whole, own):
            return
    raise MissError(node, f"the heads of cache {cache.cache.name} are not copied one by one for the query's")


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
    """Return a factor that is constant, or follows from sizes alike for all lengths."""
    elements = model.analysis(find_elements)
    number = elements.of(value, (ZERO,) * len(elements.shape(value))).as_number
    return None if number is None else float(number)


def _check_sink(attention: Attention, heads: int) -> None:
    sink = attention.sink
    if sink is not None and known_elements(sink) != heads:
        raise MissError(attention.node, f"its attention sink {sink.name} is not one number for each of {heads} heads")


def _rotations(model: Model, query: Value, key: Value, size: int) -> tuple[Rotation, Rotation] | None:
    rotations = [find_rotation(model, value, size) for value in (query, key)]
    first, second = rotations
    if first is None or second is None or first.signature != second.signature:
        return None
    return first, second
