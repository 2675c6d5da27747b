"""Apply a user's declarations of caches, unless the graph contradicts them."""

from __future__ import annotations

from dataclasses import asdict, replace

from graphpass.analysis.caches.classify import Classification
from graphpass.analysis.caches.growth import growth_of, state_batch_axis
from graphpass.analysis.caches.pairs import Pair, find_pairs, look_through_moves
from graphpass.analysis.caches.states import with_fixed_sizes
from graphpass.analysis.caches.updates import find_updates
from graphpass.errors import UsageError
from graphpass.ir.bodies import inlined
from graphpass.ir.cache import Axes, Cache
from graphpass.ir.declaration import Declaration
from graphpass.ir.model import Model


def apply_declarations(
    model: Model, declarations: tuple[Declaration, ...], kinds: dict[Pair, Classification]
) -> dict[Pair, Classification]:
    """Complete entries of unknown kind in ``kinds`` by ``declarations``.

    Args:
        model: A model without bodies, see `graphpass.ir.bodies.inlined`.
        declarations: Declarations of caches by name; those of known kind are only checked.
        kinds: Classification of each carried tensor.

    Returns:
        The entries in the order of ``kinds``.

    Raises:
        UsageError: GP219, the graph contradicts a declaration; GP217, no carried tensor has the declared name.
    """
    said = {declaration.name: declaration for declaration in declarations}
    names = [entry.cache.name for entry in kinds.values()]
    for name in said:
        if name not in names:
            hint = f"the model carries {', '.join(names[:6])}" if names else "the model carries no tensor between steps"
            raise UsageError(
                "GP217",
                f"{name} is declared as a cache, but the model has no past, present or variable of that name",
                hint,
            )
    return {
        pair: _declared(model, pair, entry, said[entry.cache.name]) if entry.cache.name in said else entry
        for pair, entry in kinds.items()
    }


def _declared(model: Model, pair: Pair, entry: Classification, said: Declaration) -> Classification:
    cache = entry.cache
    if cache.kind != "unknown":
        against = _against_what_is_known(cache, said)
        if against is None:
            return entry
    else:
        against = _against_the_rank(cache, said) or _against_the_dataflow(model, pair, said)
    if against is not None:
        raise UsageError(
            "GP219",
            f"cache {cache.name} is declared as {_text(said)}, but {against}",
            "see `graphpass why MODEL CACHE`",
        )
    agrees = f"declared to be {_text(said)}; {_support(model, pair, said)}"
    axes = said.axes
    if axes.batch is None and pair.present is not None:
        batch = cache.axes.batch if cache.axes.batch is not None else state_batch_axis(model, pair.past, pair.present)
        axes = replace(axes, batch=None if batch in asdict(axes).values() else batch)
    shape = cache.shape if pair.present is None else with_fixed_sizes(cache.shape, pair.present.shape, axes)
    evidence = *cache.evidence, agrees
    declared = replace(cache, kind=said.kind, role=said.role, axes=axes, shape=shape, evidence=evidence)
    return replace(entry, cache=declared)


def _text(said: Declaration) -> str:
    places = [f"{name} on axis {place}" for name, place in asdict(said.axes).items() if place is not None]
    return ", ".join([said.kind, *places])


def _against_what_is_known(cache: Cache, said: Declaration) -> str | None:
    if cache.kind != said.kind:
        return f"it is {cache.kind}: {'; '.join(cache.evidence)}"
    known: dict[str, int | None] = asdict(cache.axes)
    for name, place in asdict(said.axes).items():
        if place is not None and place != known[name]:
            where = "the cache lacks this axis" if known[name] is None else f"it is on axis {known[name]}"
            return f"{name} is not on axis {place}: {where}"
    return None


def _against_the_rank(cache: Cache, said: Declaration) -> str | None:
    if cache.shape is None:
        return None
    high = [f"{name}={place}" for name, place in asdict(said.axes).items() if (place or 0) >= len(cache.shape)]
    return f"it has {len(cache.shape)} axes: {high[0]} is out of range" if high else None


def contradiction(model: Model, cache: Cache, said: Declaration) -> str | None:
    """Return the fact of the dataflow that contradicts a declaration.

    Args:
        model: The model.
        cache: One of its caches of unknown kind.
        said: The declaration of this cache.

    Returns:
        The fact, as text; ``None`` without any.
    """
    whole = inlined(model)
    pair = next((pair for pair in whole.analysis(find_pairs) if pair.read.name == cache.read), None)
    if pair is None:
        return "the model does not carry it"
    return _against_the_rank(cache, said) or _against_the_dataflow(whole, pair, said)


def _against_the_dataflow(model: Model, pair: Pair, said: Declaration) -> str | None:
    stays = pair.present is None or look_through_moves(model.graph, pair.present) == pair.past
    if said.kind == "cross":
        return None if stays else "each step replaces it"
    if stays:
        return "no step changes it"
    growth = growth_of(model, pair.past, pair.present)
    growing = [axis for axis, change in enumerate(growth) if change == "grows"]
    other = [axis for axis in growing if axis != said.axes.sequence]
    if other:
        return f"it grows along axis {other[0]}"
    if said.kind == "kv" and growth and growth[_sequence(said.axes)] in {"fixed", "kept"}:
        written = {axis for update in find_updates(model.graph, pair) if not update.appends for axis in update.axes}
        if said.axes.sequence not in written:
            return f"its size along axis {said.axes.sequence} does not change, and no operator writes along this axis"
    return None


def _support(model: Model, pair: Pair, said: Declaration) -> str:
    growth = growth_of(model, pair.past, pair.present)
    axes = [_sequence(said.axes)] if said.kind == "kv" else range(len(growth))
    known = [f"axis {axis} {_WORDS[growth[axis]]}" for axis in axes if axis < len(growth)]
    return f"in the graph {', '.join(known)}" if known else "the graph does not contradict this"


_WORDS = {"fixed": "has a fixed size", "kept": "keeps its size", "grows": "grows", "unknown": "has an unknown size"}


def _sequence(axes: Axes) -> int:
    assert axes.sequence is not None
    return axes.sequence
