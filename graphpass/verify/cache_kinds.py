"""Read caches of unknown kind as the caches of the same names in the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from graphpass.analysis.caches.declared import contradiction
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.ir.declaration import Declaration, DeclaredKind

if TYPE_CHECKING:
    from graphpass.ir.cache import Cache
    from graphpass.ir.model import Model


def with_kinds_of(reference: Model, candidate: Model) -> tuple[Model, tuple[str, ...]]:
    """Declare caches of unknown kind as the reference's caches of the same names.

    Sessions refuse caches of unknown kind. An operator between a cache and the attention that reads it, for example,
    hides the kind, and is a difference that a comparison has to report.

    Args:
        reference: The reference model.
        candidate: The candidate model, which is not edited.

    Returns:
        A copy of the candidate with the declarations that its dataflow does not contradict, and a line on them;
        the candidate and an empty tuple without any.
    """
    known = {cache.name: cache for cache in analyze_caches(reference).caches if cache.kind in get_args(DeclaredKind)}
    declared = []
    for cache in analyze_caches(candidate).caches:
        own = known.get(cache.name) if cache.kind == "unknown" else None
        if own is not None and _has_layout(cache, own):
            said = Declaration(own.name, own.kind, own.role, own.axes)  # type: ignore[arg-type]  # looked up above
            if contradiction(candidate, cache, said) is None:
                declared.append(said)
    if not declared:
        return candidate, ()
    copy = candidate.clone()
    copy.declare([*candidate.declarations, *declared])
    names = ", ".join(said.name for said in declared)
    return copy, (f"kinds of caches: the candidate's dataflow does not show that of {names}, read as the reference's",)


def _has_layout(cache: Cache, other: Cache) -> bool:
    """Return whether rank and fixed sizes are equal, except batch and sequence."""
    if cache.shape is None or other.shape is None or len(cache.shape) != len(other.shape):
        return False
    free = {axis for axis in (other.axes.batch, other.axes.sequence) if axis is not None}
    return all(
        not (isinstance(size, int) and isinstance(expected, int)) or size == expected
        for axis, (size, expected) in enumerate(zip(cache.shape, other.shape, strict=True))
        if axis not in free
    )
