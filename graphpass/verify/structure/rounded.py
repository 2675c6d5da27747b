"""Caches of rounded numbers, where the reference rounds its cache in each step."""

from __future__ import annotations

from graphpass.analysis.caches.rounded import find_rounded
from graphpass.ir.cache import BHSD
from graphpass.ir.model import Model
from graphpass.verify.structure.caches import first_value, paired
from graphpass.verify.structure.latents import Expanded


def rounded_caches(reference: Model, candidate: Model) -> tuple[Expanded, ...]:
    """Return the candidate's caches that only the reference rounds in each step.

    Args:
        reference: Model that may round caches.
        candidate: Model compared with it.
    """
    rounded = {found.cache: found for found in reference.analysis(find_rounded)}
    again = {found.cache for found in candidate.analysis(find_rounded)} if rounded else set()
    expanded = []
    for pair in paired(reference, candidate) if rounded else ():
        found, cache = rounded.get(pair.reference), pair.candidate
        begun = [first_value(reference, pair.reference), first_value(candidate, cache)]
        if found is None or cache in again or any(value is not None for value in begun):
            continue
        if pair.reference.axes == cache.axes == BHSD:
            source = found.quantizers[0].outputs[0]
            expanded.append(Expanded(cache, source, found.order, (pair.reference,), parts=1))
    return tuple(expanded)
