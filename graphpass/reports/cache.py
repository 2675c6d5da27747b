"""Report on the analysis of one cache."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from graphpass.analysis.attention.reads import attention_reads
from graphpass.analysis.caches.classify import RULES, CacheCase
from graphpass.analysis.caches.masks import find_masks
from graphpass.analysis.caches.pairs import Pair, find_pairs
from graphpass.analysis.equations.angles import find_angles
from graphpass.errors import UsageError
from graphpass.ir.bodies import inlined
from graphpass.ir.cache import Cache, Inventory
from graphpass.ir.graph import Node
from graphpass.ir.miss import Miss
from graphpass.ir.model import Model
from graphpass.ir.operators import LAYOUT, SOURCES
from graphpass.ir.paths import shortest_way
from graphpass.ir.types import shape_text
from graphpass.reports.attention import FUSE, FUSE_GROUPED, grouped_query_misses, mask_in_words, positions_in_words
from graphpass.reports.inventory import cache_json, miss_json
from graphpass.reports.report import Report
from graphpass.reports.text import columns, some_of

#: Operators that only move, convert or copy elements, omitted from folded paths.
_QUIET = LAYOUT | {"Dropout"}

#: Number of nodes at each end of a folded path.
_ENDS = 6


@dataclass(frozen=True, slots=True)
class Attempt:
    """One rule that was tried.

    Attributes:
        rule: Claim of the rule.
        holds: Whether the claim holds.
        fact: Decisive fact; for a rule that does not hold, its first miss.
    """

    rule: str
    holds: bool
    fact: str


@dataclass(frozen=True, slots=True)
class Reader:
    """An attention block that reads a cache.

    Attributes:
        node: Operator and name of the block's node.
        role: Role of the cache in the block.
        through: Operators and names on the path from the cache to the block.
        misses: Misses of `fuse-attention` and `fuse-group-query-attention`, by pass.
        mask: Lines of `mask_in_words`.
        positions: Lines of `positions_in_words`.
    """

    node: str
    role: str
    through: tuple[str, ...] = ()
    misses: Mapping[str, Miss] = field(default_factory=dict)
    mask: tuple[str, ...] = ()
    positions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reasoning(Report):
    """Reasons for the kind and role of a cache.

    Attributes:
        cache: The cache, with its evidence.
        attempts: The rules in the order in which they were tried; only the last can hold.
        path: The nodes from past to present, both included; only the past if the cache is not written.
        readers: The attention blocks that read the cache.
    """

    cache: Cache
    attempts: tuple[Attempt, ...]
    path: tuple[Node, ...]
    readers: tuple[Reader, ...]

    def text(self, *, unfolded: bool = False) -> str:
        """Return the text of ``graphpass why``.

        Args:
            unfolded: Whether to print the whole path from past to present.
        """
        cache = self.cache
        layer = "layer unknown" if cache.layer is None else f"layer {cache.layer}"
        lines = [f"{cache.name}: {cache.kind}, {cache.role}, {layer}", "", "evidence"]
        lines += [f"  {fact}" for fact in cache.evidence]
        lines += ["", "from past to present" if cache.write is not None else "the past; nothing is written back"]
        lines += _path(self.path, unfolded=unfolded)
        lines += ["", "read by"]
        for reader in self.readers:
            lines += [f"  {reader.node}, as {reader.role}", *(f"    through {step}" for step in reader.through)]
            lines += [f"    {line}" for line in (*reader.mask, *reader.positions)]
            lines += [f"    {name} does not fuse it: {miss}" for name, miss in reader.misses.items()]
        if not self.readers:
            lines.append("  no recognized attention")
        lines += ["", "rules, in the order in which they were tried"]
        for tried in self.attempts:
            lines += [f"  {'yes' if tried.holds else 'no '}  {tried.rule}", f"       {tried.fact}"]
        if not any(attempt.holds for attempt in self.attempts):
            lines += ["  no rule holds"]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the object of ``why --format json`` (``schemas/why.json``)."""
        return {
            "cache": cache_json(self.cache),
            "attempts": [asdict(attempt) for attempt in self.attempts],
            "path": [{"name": node.name, "op": node.op} for node in self.path],
            "readers": [
                {
                    "node": reader.node,
                    "role": reader.role,
                    "through": list(reader.through),
                    "misses": {name: miss_json(miss) for name, miss in reader.misses.items()},
                    "mask": list(reader.mask),
                    "positions": list(reader.positions),
                }
                for reader in self.readers
            ],
        }


def find_cache(inventory: Inventory, name: str) -> Cache:
    """Return a cache by name.

    Args:
        inventory: The caches to search.
        name: Name of a cache, of its past or present, a prefix of these names that only one cache has, or the number
            of a layer, for its first cache.

    Raises:
        UsageError: GP217, no cache matches, or several have the prefix.
    """
    for cache in inventory.caches:
        if name in {cache.name, cache.read, cache.write}:
            return cache
    if name.isdecimal() and (inside := [cache for cache in inventory.caches if cache.layer == int(name)]):
        return inside[0]
    known = [[label for label in (cache.name, cache.read, cache.write) if label] for cache in inventory.caches]
    beginning = [
        cache
        for cache, names in zip(inventory.caches, known, strict=True)
        if name and any(label.startswith(name) for label in names)
    ]
    if len(beginning) == 1:
        return beginning[0]
    if beginning:
        reason = f"{len(beginning)} caches have names that begin with {name!r}"
        raise UsageError("GP217", reason, f"they are {some_of([cache.name for cache in beginning])}")
    near = difflib.get_close_matches(name, sorted({label for names in known for label in names}), n=3)
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    elif known:
        hint = "graphpass inspect --all lists the caches"
    else:
        hint = "the model has no caches"
    raise UsageError("GP217", f"there is no cache called {name!r}", hint)


def reason_about(model: Model, inventory: Inventory, cache: Cache) -> Reasoning:
    """Return the reasons for the classification of ``cache``.

    Args:
        model: The model.
        inventory: Inventory of the model.
        cache: A cache in the inventory.
    """
    whole = inlined(model)
    graph = whole.graph
    past = next(node for node in graph.of_op(*SOURCES) if node.name == cache.read)
    reads = whole.analysis(attention_reads).get(past.index, ())
    pair = next(
        (pair for pair in whole.analysis(find_pairs) if pair.read == past), Pair(past.outputs[0], None, past, None)
    )
    grouped = grouped_query_misses(model)
    masks = {mask.node.name: tuple(mask_in_words(mask)) for mask in whole.analysis(find_masks)}
    positions = {angles.node.name: tuple(positions_in_words(angles)) for angles in whole.analysis(find_angles)}
    readers = [
        Reader(
            read.attention.node.called,
            read.role,
            tuple(dict.fromkeys(step.node.called for step in reversed(read.path))),
            _known({FUSE: read.attention.miss, FUSE_GROUPED: grouped.get(read.attention.node.name)}),
            masks[read.attention.node.name],
            positions[read.attention.node.name],
        )
        for read in reads
    ]
    known = {reader.node.split(" ", 1)[1] for reader in readers}
    # Fused operators that append to the cache themselves are only in the inventory.
    for block in inventory.attention:
        if block.node not in known:
            roles = [role for role, name in (("key", block.key), ("value", block.value)) if name == cache.name]
            words = masks[block.node], positions[block.node]
            readers += [Reader(f"{block.form} {block.node}", role, (), {}, *words) for role in roles]
    path = (shortest_way(whole, past, pair.write) if pair.write is not None else ()) or (past,)
    return Reasoning(cache, tuple(_attempts(CacheCase(whole, pair, reads))), path, tuple(readers))


def _known(misses: Mapping[str, Miss | None]) -> dict[str, Miss]:
    return {name: miss for name, miss in misses.items() if miss is not None}


def _attempts(case: CacheCase) -> Iterator[Attempt]:
    for rule in RULES:
        judgement = rule.judge(case)
        if isinstance(judgement, str):
            yield Attempt(rule.claim, False, judgement)
            continue
        # An unknown cache that grows is a claim, too; for other unknown caches, the last evidence is the miss.
        holds = judgement.cache.kind != "unknown" or judgement.cache.axes.sequence is not None
        yield Attempt(rule.claim, holds, judgement.cache.evidence[0 if holds else -1])
        return


def _path(nodes: tuple[Node, ...], *, unfolded: bool) -> list[str]:
    # Both ends and the producer of the present are never folded, because rules mention them.
    ends = {*nodes[:1], *nodes[-2:]}
    shown = [node for node in nodes if unfolded or node in ends or node.op not in _QUIET]
    lines = columns([(node.op, node.name, _result(node)) for node in shown])
    if not unfolded and len(lines) > 2 * _ENDS + 1:
        lines[_ENDS:-_ENDS] = [f"  ... {len(lines) - 2 * _ENDS} more; --all prints them"]
    return lines


def _result(node: Node) -> str:
    facts = [f"axis {node.attributes['axis']}"] if "axis" in node.attributes else []
    if node.outputs and node.outputs[0].shape is not None:
        facts.append(f"to {shape_text(node.outputs[0].shape)}")
    return ", ".join(facts)
