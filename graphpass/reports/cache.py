"""Report all that is known of one cache."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from graphpass.analysis.attention.reads import attention_reads
from graphpass.analysis.caches.classify import RULES, Case
from graphpass.analysis.caches.pairs import Pair, find_pairs
from graphpass.errors import UsageError
from graphpass.ir.bodies import inlined
from graphpass.ir.cache import Cache, Inventory
from graphpass.ir.graph import Node
from graphpass.ir.model import Model
from graphpass.ir.operators import SOURCES
from graphpass.ir.paths import shortest_way
from graphpass.ir.pattern import Miss

__all__ = ["Attempt", "Reader", "Reasoning", "find_cache", "reason_about"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One rule that was tried.

    Attributes:
        rule: Its claim.
        holds: Whether it applies.
        fact: The fact that decides: for a rule that does not hold, the first one that it missed.
    """

    rule: str
    holds: bool
    fact: str


@dataclass(frozen=True, slots=True)
class Reader:
    """One attention that reads a cache.

    Attributes:
        node: Its operator and name.
        role: What it reads the cache as.
        through: Operators and names on the way from the cache to attention.
        miss: Why `fuse-attention` leaves it; ``None`` if it does not.
    """

    node: str
    role: str
    through: tuple[str, ...] = ()
    miss: Miss | None = None


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Reasons for the kind and role of a cache.

    Attributes:
        cache: The cache, with its evidence.
        attempts: The rules that were tried, in order; the last one holds if any does.
        path: The nodes from the past to what is written back, both included; only the past if nothing is.
        readers: The attention that reads it.
    """

    cache: Cache
    attempts: tuple[Attempt, ...]
    path: tuple[Node, ...]
    readers: tuple[Reader, ...]


def find_cache(inventory: Inventory, name: str) -> Cache:
    """Return the cache called ``name``: its own, that of its past or present, or a beginning that only it has.

    Raises:
        UsageError: GP217, there is none.
    """
    for cache in inventory.caches:
        if name in {cache.name, cache.read, cache.write}:
            return cache
    beginning = [cache for cache in inventory.caches if cache.name.startswith(name)] if name else []
    if len(beginning) == 1:
        return beginning[0]
    names = {known for cache in inventory.caches for known in (cache.name, cache.read, cache.write) if known}
    near = difflib.get_close_matches(name, sorted(names), n=3)
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    elif names:
        hint = "graphpass inspect --all lists the caches"
    else:
        hint = "the model has no caches"
    message = f"{len(beginning)} caches have names that begin with" if beginning else "there is no cache called"
    raise UsageError("GP217", f"{message} {name!r}", hint)


def reason_about(model: Model, inventory: Inventory, cache: Cache) -> Reasoning:
    """Return everything that led to the classification of ``cache``.

    Args:
        model: The model that ``inventory`` is of.
        inventory: Its inventory.
        cache: One of its caches.
    """
    whole = inlined(model)
    graph = whole.graph
    past = next(node for node in graph.of_op(*SOURCES) if node.name == cache.read)
    reads = whole.analysis(attention_reads).get(past.index, ())
    pair = next(
        (pair for pair in whole.analysis(find_pairs) if pair.read == past), Pair(past.outputs[0], None, past, None)
    )
    readers = [
        Reader(
            read.attention.node.called,
            read.role,
            tuple(dict.fromkeys(step.node.called for step in reversed(read.path))),
            read.attention.miss,
        )
        for read in reads
    ]
    known = {reader.node.split(" ", 1)[1] for reader in readers}
    # Operators with the cache inside are no readers of a value, but the inventory knows them.
    for block in inventory.attention:
        if block.node not in known:
            roles = [role for role, name in (("key", block.key), ("value", block.value)) if name == cache.name]
            readers += [Reader(f"{block.form} {block.node}", role) for role in roles]
    path = (shortest_way(whole, past, pair.write) if pair.write is not None else ()) or (past,)
    return Reasoning(cache, tuple(_attempts(Case(whole, pair, reads))), path, tuple(readers))


def _attempts(case: Case) -> Iterator[Attempt]:
    """Try the rules, up to the first that applies."""
    for rule in RULES:
        found = rule.judge(case)
        if isinstance(found, str):
            yield Attempt(rule.claim, False, found)
            continue
        # An unknown cache that is known to grow is a claim, too; any other misses what its evidence ends with.
        holds = found.cache.kind != "unknown" or found.cache.axes.sequence is not None
        yield Attempt(rule.claim, holds, found.cache.evidence[0 if holds else -1])
        return
