"""Pairs of corresponding caches of both models, which expressions read as one leaf."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.symbolic.expressions import ZERO
from graphpass.analysis.symbolic.folding import is_zero
from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.ir.cache import Cache
from graphpass.ir.graph import Value
from graphpass.ir.model import Model
from graphpass.verify.structure.leaves import CacheWindow, Leaf
from graphpass.verify.structure.moves import moves_slots, selects_rows


@dataclass(frozen=True, slots=True)
class Carried:
    """A cache of the reference, paired with one of the candidate.

    Attributes:
        name: Name of the reference's cache.
        reference: The reference's cache.
        candidate: The candidate's cache.
    """

    name: str
    reference: Cache
    candidate: Cache

    def orders(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the axes of both tensors in a common order.

        The order is batch, heads, sequence, head_dim if both caches have exactly these; otherwise that of the tensors.
        """
        ranks = len(self.reference.shape or ()), len(self.candidate.shape or ())
        mine, theirs = (
            [axes.batch, axes.heads, axes.sequence, axes.head_dim]
            for axes in (self.reference.axes, self.candidate.axes)
        )
        first, second = list(range(ranks[0])), list(range(ranks[1]))
        known = [
            (left, right) for left, right in zip(mine, theirs, strict=True) if left is not None and right is not None
        ]
        if len(known) == ranks[0] == ranks[1]:
            first, second = [axis for axis, _ in known], [other for _, other in known]
        return tuple(first), tuple(second)

    def windows(self) -> tuple[CacheWindow | None, CacheWindow | None]:
        """Return the window of the larger tensor, if sizes differ along one axis; otherwise ``None``.

        A convolution state has the additional columns before the window; keys and values have zeros after it.
        """
        shapes = [cache.shape or () for cache in (self.reference, self.candidate)]
        if len(shapes[0]) != len(shapes[1]):
            return None, None
        pairs = [(shapes[0][left], shapes[1][right], left, right) for left, right in zip(*self.orders(), strict=True)]
        differing = [pair for pair in pairs if all(isinstance(size, int) for size in pair[:2]) and pair[0] != pair[1]]
        if len(differing) != 1:
            return None, None
        ((mine, its, *axes),) = differing
        assert isinstance(mine, int)
        assert isinstance(its, int)
        count, is_filled = min(mine, its), self.reference.kind == "kv"
        result = [
            None if size == count else CacheWindow(axis, 0 if is_filled else size - count, count, is_filled)
            for size, axis in zip((mine, its), axes, strict=True)
        ]
        return result[0], result[1]


def paired(reference: Model, candidate: Model) -> Iterator[Carried]:
    """Yield the pairs of caches: by name and kind, then by kind, layer and role.

    The proof is by induction, so any pairing is sound: if paired caches are equal before a step, then the results and
    the paired caches after it are proven equal.

    Args:
        reference: Model whose caches give the pairs their names.
        candidate: Model compared with it.
    """
    caches = [{cache.name: cache for cache in analyze_caches(model).caches} for model in (reference, candidate)]
    named = {name for name in caches[0].keys() & caches[1] if caches[0][name].kind == caches[1][name].kind}
    yield from (Carried(name, own, caches[1][name]) for name, own in caches[0].items() if name in named)
    groups: list[dict[object, list[Cache]]] = []
    for by_name in caches:
        by_key: dict[object, list[Cache]] = {}
        for cache in by_name.values():
            if cache.name not in named:
                by_key.setdefault((cache.kind, cache.layer, cache.role), []).append(cache)
        groups.append(by_key)
    for key, own in groups[0].items():
        others = groups[1].get(key, [])
        if len(own) == len(others):
            ordered = sorted(others, key=lambda cache: (cache.index or 0, cache.name))
            for left, right in zip(own, ordered, strict=True):
                yield Carried(left.name, left, right)


#: Inputs that select rows of caches in the model; without them the caller selects rows between steps.
SELECTORS = frozenset({"beam_idx"})


def leaves_of(models: tuple[Model, Model], pairs: Collection[Carried], side: int) -> dict[int, Leaf]:
    """Return the leaves of one model by index of the node that reads the cache.

    Args:
        models: Reference and candidate.
        pairs: Their pairs of caches.
        side: 0 for the reference, 1 for the candidate.
    """
    reads, leaves = models[side].graph.reads, {}
    shared = set(never_selected(models, pairs))
    free, own = (
        _selected_between_steps(models[which], [pair.candidate if which else pair.reference for pair in pairs])
        for which in (1 - side, side)
    )
    for pair in pairs:
        cache = pair.candidate if side else pair.reference
        # Either both caches have initial values, which are compared, or neither has.
        begins = {value is None for value in _first_values(models, pair)}
        if cache.read in reads and len(begins) == 1:
            # The caller has already selected the rows of an input without an output.
            is_fed = cache.write is None and reads[cache.read].op == "Parameter"
            rows = None if is_fed else cache.axes.batch
            is_selected = (pair.reference if side else pair.candidate).read in free and cache.read not in own
            is_free = is_selected and pair.name not in shared
            own_inputs = models[side].graph.parameters
            selectors = SELECTORS.intersection(own_inputs) if is_free else frozenset[str]()
            leaves[reads[cache.read].index] = Leaf(
                pair.name, pair.orders()[side], rows, selectors=selectors, window=pair.windows()[side]
            )
    return leaves


def never_selected(models: tuple[Model, Model], pairs: Iterable[Carried]) -> Iterator[str]:
    """Yield names of caches whose rows the candidate's caller selects, but not the reference.

    Encoder states are an example: they are equal in all rows that continue one sequence.

    Args:
        models: Reference and candidate.
        pairs: Their pairs of caches.
    """
    reference, candidate = models
    selectors = SELECTORS & reference.graph.parameters.keys()
    if selectors and not SELECTORS & candidate.graph.parameters.keys():
        yield from (pair.name for pair in pairs if not selects_rows(reference, pair.reference, selectors))


def _selected_between_steps(model: Model, caches: Iterable[Cache]) -> set[str]:
    """Return inputs and variables of the caches whose rows the caller selects between steps.

    If no cache is selected by an input, these are all caches of a model without `SELECTORS`, or the kv caches of a
    model with inputs that move slots.
    """
    caches, selectors = list(caches), SELECTORS & model.graph.parameters.keys()
    if selectors:
        caches = [cache for cache in caches if cache.kind == "kv"] if moves_slots(model) else []
    is_any_selected = any(selects_rows(model, cache, selectors) for cache in caches)
    return set() if is_any_selected else {cache.read for cache in caches}


def starts(models: tuple[Model, Model], pair: Carried) -> tuple[Value, Value] | None:
    """Return the initial values of both models' variables; ``None`` if either has none.

    For example, variables of encoder states have initial values. They are one leaf if the initial values are equal, and
    the values after each step.

    Args:
        models: Reference and candidate.
        pair: A pair of their caches.
    """
    first, second = _first_values(models, pair)
    return None if first is None or second is None else (first, second)


def _first_values(models: tuple[Model, Model], pair: Carried) -> list[Value | None]:
    """Return the initial values of both caches; ``None`` for inputs, empty or zero variables."""
    caches = pair.reference, pair.candidate
    return [first_value(model, cache) for model, cache in zip(models, caches, strict=True)]


def first_value(model: Model, cache: Cache) -> Value | None:
    """Return the initial value of a variable; ``None`` if it is empty or zero.

    Args:
        model: The model.
        cache: One of its caches; an input has no initial value.
    """
    read = model.graph.reads.get(cache.read)
    value = read.source() if read is not None and read.op == "ReadValue" and read.inputs else None
    return None if value is None or (is_zero(model.graph, value) and not _has_positions(model, cache, value)) else value


def _has_positions(model: Model, cache: Cache, value: Value) -> bool:
    """Return whether a cache that grows may begin with positions."""
    axis, sizes = cache.axes.sequence, model.analysis(infer_sizes).shape(value)
    grows = axis is not None and not isinstance((cache.shape or (None,) * (axis + 1))[axis], int)
    return axis is not None and grows and (sizes is None or axis >= len(sizes) or sizes[axis] is not ZERO)


def written(model: Model, cache: Cache) -> Value | None:
    """Return the value of a cache after the step; ``None`` if it is not written.

    Args:
        model: The model.
        cache: One of its caches.
    """
    node = model.graph.writes.get(cache.write)
    return None if node is None else node.source()
