"""Find caches whose names contradict dataflow; runtimes pair pasts and presents by name."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.ir.operators import CASTS
from graphpass.verify.comparison import Comparison
from graphpass.verify.structure.caches import written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphpass.ir.graph import Value
    from graphpass.ir.model import Model


def with_names(proven: Comparison, reference: Model, candidate: Model) -> Comparison:
    """Add pasts and presents whose names do not match to a comparison.

    They are a divergence, or a warning if the reference has some, too. Sessions pair by dataflow, so sequences do not
    detect them.

    Args:
        proven: The comparison of both models; its divergence, if any, is kept.
        reference: The reference model.
        candidate: The candidate model, whose names are checked.

    Returns:
        The comparison, unchanged if all names match.
    """
    crossed = candidate.analysis(crossed_caches)
    if not crossed:
        return proven
    (past, present), more = crossed[0], f" ({len(crossed)} such pairs)" if len(crossed) > 1 else ""
    words = f"{past} has the present {present} by dataflow, but not by name{more}"
    if reference.analysis(crossed_caches):
        return replace(proven, warnings=(*proven.warnings, f"as in the reference, {words}"))
    return proven.diverging("caches", words) if proven.passed else proven


def crossed_caches(model: Model) -> tuple[tuple[str, str], ...]:
    """Return pairs of past input and present output by dataflow whose names do not match.

    Names match if their numbers and roles are equal. Numbers are compared only within a group of names that are
    equal except for numbers, and only if pasts and presents of the group have the same numbers in some order.
    """
    inventory = model.analysis(analyze_caches)
    if inventory.stateful:
        return ()
    pairs = [(cache.read, cache.write) for cache in inventory.caches if cache.write is not None]
    exchanged: dict[tuple[str, str], None] = {}
    groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for read, write in pairs:
        groups.setdefault((_form(read), _form(write)), []).append((read, write))
    for group in groups.values():
        reads, writes = ([_numbers(name) for name in names] for names in zip(*group, strict=True))
        if sorted(reads) == sorted(writes):
            crossed = zip(group, reads, writes, strict=True)
            exchanged |= {pair: None for pair, before, after in crossed if before != after}
    exchanged |= dict.fromkeys(_of_other_roles(pairs))
    return tuple(pair for pair in pairs if pair in exchanged)


def shared_present(reference: Model, candidate: Model) -> tuple[str, str] | None:
    """Return two presents of the reference that are one value in the candidate.

    Each is its past with new positions in the reference, so the models differ.

    Args:
        reference: The reference model.
        candidate: The candidate model.

    Returns:
        The names of both; ``None`` without such presents.
    """
    seen: dict[Value, tuple[str, Value]] = {}
    for cache in analyze_caches(reference).of_kind("kv"):
        values = [written(model, cache) for model in (reference, candidate)]
        own, other = (
            value and model.graph.look_through(value, CASTS)
            for model, value in zip((reference, candidate), values, strict=True)
        )
        if cache.write is not None and own is not None and other is not None:
            first, value = seen.setdefault(other, (cache.write, own))
            if value != own:
                return first, cache.write
    return None


def _of_other_roles(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return pairs with other numbers or roles, while another present matches the past.

    Numbers are compared only if pasts and presents have the same numbers and roles in some order.
    """
    keys = [(_key(read), _key(write)) for read, write in pairs]
    reads, writes = Counter(read for read, _ in keys), Counter(write for _, write in keys)
    return [
        pair
        for pair, (past, present) in zip(pairs, keys, strict=True)
        if past != present and (reads == writes or (past[0] == present[0] and past in writes))
    ]


def _form(name: str) -> str:
    return re.sub(r"\d+", "#", name)


def _numbers(name: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", name)))


def _key(name: str) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the numbers of a name, and its role: later words, or the last."""
    before, *after = re.split(r"\d+", name.lower(), maxsplit=1)
    words = re.findall(r"[a-z]+", "".join(after)) or re.findall(r"[a-z]+", before)[-1:]
    return _numbers(name), tuple(words)
