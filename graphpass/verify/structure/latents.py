"""Keys and values in the candidate's caches, where the reference's have another form.

The reference caches latents, or keys and values in one tensor.

The candidate's cache is read as the keys or values that the reference computes for past positions. The proof is by
induction: keys and values of all positions are proven equal after a step. This requires that the reference computes
those of a position from its caches alone, so that they are the same in all later steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, dataclass

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.latents import find_latents
from graphpass.analysis.caches.packed import packed_caches
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Index, UnknownError
from graphpass.analysis.symbolic.expressions import ZERO, Expr
from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.analysis.symbolic.step import BATCH, LENGTH, PAST
from graphpass.ir.cache import BHSD, Cache
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.model import Model
from graphpass.ir.operators import SHAPE_READERS
from graphpass.ir.values import fixed_size
from graphpass.verify.structure.caches import SELECTORS, first_value, written
from graphpass.verify.structure.definition import Definition
from graphpass.verify.structure.leaves import CacheWindow, Leaf
from graphpass.verify.structure.tensors import DefinedTensors

#: Axes of keys and values, and of transposed keys, in the order of the layout.
_ORDER, _TRANSPOSED = (0, 1, 2, 3), (0, 1, 3, 2)

#: Roles of the parts of a packed cache, in order.
_PARTS = ("key", "value")


@dataclass(frozen=True, slots=True)
class Expanded:
    """A cache of the candidate that stores numbers which the reference computes from its caches.

    Attributes:
        cache: The cache.
        source: The reference's keys or values of all positions.
        order: Axes of the source in the cache's order.
        latents: The reference's caches that they are computed from.
        window: The part of the cache that corresponds to the source, if the rest is filled with zeros.
        parts: Number of such caches that together replace ``latents``: keys and values for latents.
        part: The part of the source, which is the reference's written cache of keys and values.
    """

    cache: Cache
    source: Value
    order: tuple[int, ...]
    latents: tuple[Cache, ...]
    window: CacheWindow | None = None
    parts: int = 2
    part: CacheWindow | None = None

    def place(self, index: Index) -> Index:
        """Return the index in the source of an element of the cache.

        Args:
            index: Index of the element, within the window.
        """
        own = [ZERO] * (len(self.order) + (self.part is not None))
        for place, axis in enumerate(self.order):
            own[axis] = index[place]
        return tuple(own) if self.part is None else self.part.shifted(tuple(own), self.part.first)


def expanded_caches(reference: Model, candidate: Model) -> tuple[Expanded, ...]:
    """Return the candidate's caches of keys and values in layers where the reference has others.

    Args:
        reference: Model that may cache latents, or keys and values in one tensor.
        candidate: Model compared with it; the result is empty if it has such caches, too.
    """
    return (*_of_latents(reference, candidate), *_of_packed(reference, candidate))


def _of_packed(reference: Model, candidate: Model) -> Iterator[Expanded]:
    """Yield keys and values of caches that store both along an axis of size 2.

    Keys are the first part. The proof is by induction, so any pairing is sound.
    """
    others = analyze_caches(candidate)
    packed = {cache.layer: cache for cache in packed_caches(analyze_caches(reference))}
    if not packed or packed_caches(others):
        return
    for cache in others.of_kind("kv"):
        own = packed.get(cache.layer)
        if own is None or cache.axes != BHSD or cache.role not in {"key", "value"}:
            continue
        source, order = written(reference, own), astuple(own.axes)
        is_empty = first_value(candidate, cache) is None and first_value(reference, own) is None
        if source is None or None in order or source.rank != len(order) + 1 or not is_empty:
            continue
        (axis,) = {*range(source.rank)} - {*order}
        if fixed_size(source, axis) == len(_PARTS):
            part = CacheWindow(axis, _PARTS.index(cache.role), 1, is_filled=False)
            yield Expanded(cache, source, order, (own,), part=part)


def _of_latents(reference: Model, candidate: Model) -> tuple[Expanded, ...]:
    layers = {latents.caches[0].layer: latents for latents in find_latents(reference)}
    if not layers or find_latents(candidate):
        return ()
    expanded = []
    for cache in analyze_caches(candidate).of_kind("kv"):
        latents = layers.get(cache.layer)
        if latents is None or cache.axes != BHSD or cache.role not in {"key", "value"}:
            continue
        begun = [first_value(candidate, cache), *(first_value(reference, latent) for latent in latents.caches)]
        if any(value is not None for value in begun):
            continue
        attention, is_key = latents.attention, cache.role == "key"
        source = attention.key if is_key else attention.value
        if source is None or source.rank != len(_ORDER) or not _is_of_caches(reference.graph, source, latents.caches):
            continue
        order = _TRANSPOSED if is_key and attention.key_is_transposed else _ORDER
        window = _window(reference, source, order, cache)
        expanded.append(Expanded(cache, source, order, latents.caches, window))
    return tuple(expanded)


def _window(reference: Model, source: Value, order: tuple[int, ...], cache: Cache) -> CacheWindow | None:
    sizes, size = reference.analysis(infer_sizes).shape(source), (cache.shape or (None,))[-1]
    count = sizes[order[3]].as_number if sizes is not None else None
    is_larger = isinstance(count, int) and isinstance(size, int) and size > count
    return CacheWindow(3, 0, int(count or 0), is_filled=True) if is_larger else None


def _is_of_caches(graph: Graph, source: Value, caches: Iterable[Cache]) -> bool:
    """Return whether a value depends only on caches after the step, constants and sizes."""
    written = {graph.writes[str(cache.write)].source() for cache in caches if cache.write is not None}

    def inputs(node: Node) -> tuple[Value | None, ...]:
        is_end = node.op in SHAPE_READERS or any(output in written for output in node.outputs)
        return () if is_end else node.inputs

    return all(node.op not in {"Parameter", "ReadValue"} for node in graph.backward([source], inputs))


def latents_of(pairs: Iterable[Expanded]) -> set[Cache]:
    """Return the reference's caches that are replaced by all their `Expanded.parts` in ``pairs``."""
    pairs = list(pairs)
    times = Counter(cache for pair in pairs for cache in pair.latents)
    return {cache for pair in pairs for cache in pair.latents if times[cache] == pair.parts}


def latent_leaves(pairs: Iterable[Expanded], reference: Model) -> dict[int, Leaf]:
    """Return the leaves of the reference's latents, by index of the node that reads them.

    Args:
        pairs: Caches that `expanded_caches` returned.
        reference: The model with the latents.
    """
    caches = {cache for pair in pairs for cache in pair.latents}
    selectors = SELECTORS & reference.graph.parameters.keys()
    return {
        reference.graph.reads[cache.read].index: Leaf(
            cache.name, tuple(range(len(cache.shape or ()))), cache.axes.batch, selectors=selectors
        )
        for cache in caches
    }


def leaf_of(pair: Expanded, reference: DefinedTensors, candidate: Model) -> Leaf:
    """Return the leaf of a cache: the reference's keys or values of past positions.

    Leaves of both models have the rows that ``beam_idx`` selects, in the model or between steps.

    Args:
        pair: The cache, which `expanded_caches` returned.
        reference: Tensors of the model with the latents.
        candidate: The model with the cache.
    """
    selectors = SELECTORS & candidate.graph.parameters.keys()
    past = _past(pair, reference)
    return Leaf(pair.cache.name, _ORDER, 0, selectors=selectors, window=pair.window, past=past)


def _past(pair: Expanded, reference: DefinedTensors) -> Callable[[Index], Expr]:
    made: list[Expr] = []

    def past(index: Index) -> Expr:
        sizes = reference.shape(pair.source)
        ranges = (BATCH, sizes[pair.order[1]], PAST, sizes[pair.order[3]])
        own = tuple(ex.index(f"past {axis}", size) for axis, size in enumerate(ranges))
        if not made:
            made.append(reference.definitions.algebra.cases(reference.of(pair.source, pair.place(own))))
        if not _is_kept(made[0]) or (pair.part is not None and not _is_stored(pair, reference, made[0], own)):
            raise UnknownError("keys or values of past positions depend on the step in the reference")
        return ex.substitute(made[0], dict(zip(own, index, strict=True)))

    return past


def _is_stored(pair: Expanded, reference: DefinedTensors, past: Expr, own: Index) -> bool:
    """Return whether the written cache stores what is read of the past.

    Args:
        pair: A part of a packed cache.
        reference: Tensors of the model with the packed cache.
        past: Element of the keys or values at a past position.
        own: The indices of ``past``, in the order of the part.
    """
    (cache,) = pair.latents
    value = written(reference.model, cache)
    if value is None or past.op != "read" or past.args[0] != ("cache", cache.name):
        return False
    every = ex.index("position", ex.add(PAST, LENGTH))
    place = tuple(ex.substitute(part, {own[2]: every}) for part in past.args[1:])
    index = (*own[:2], every, own[3])
    return reference.of(value, place) is reference.of(pair.source, pair.place(index))


def _is_kept(expr: Expr) -> bool:
    """Return whether an element depends only on caches and constants, hence equal in all steps."""
    pending, seen = [expr], set[Expr]()
    while pending:
        part = pending.pop()
        if part in seen:
            continue
        seen.add(part)
        if part.op == "index":
            # A sum over all positions depends on their number.
            if str(part.args[0]).startswith("r") and ex.uses([part.args[1]], "length"):
                return False
            continue
        if part.op in {"length", "opaque"} or (part.op == "read" and isinstance(part.args[0], str)):
            return False
        if part.op == "read" and isinstance(part.args[0], Definition):
            pending += part.args[0].bodies
        pending += part.operands
    return True
