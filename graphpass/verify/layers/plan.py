"""Pair the layers of two models by the weights that they read."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from graphpass.analysis.caches.chain import LayerChain, find_chain
from graphpass.ir.values import fixed_size
from graphpass.verify.identities import Contents, identify

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from graphpass.ir.graph import Value
    from graphpass.ir.model import Model


@dataclass(frozen=True, eq=False)
class Part:
    """Bounds a part of one model.

    Attributes:
        chain: The model.
        entry: The value that the part begins with; ``None`` for the tokens.
        exit: The value that it ends with; ``None`` for the logits.
        caches: Names of caches that belong to it.
    """

    chain: LayerChain
    entry: Value | None
    exit: Value | None
    caches: tuple[str, ...]

    @cached_property
    def reads(self) -> frozenset[str]:
        """Return the names of inputs and ReadValues that are its own caches, or no caches."""
        others = {cache.read for cache in self.chain.caches if cache.name not in self.caches}
        return frozenset(self.chain.graph.reads.keys() - others)

    @property
    def ends(self) -> list[Value]:
        """Return its last value, then those written to its caches."""
        graph = self.chain.graph
        values = [self.exit if self.exit is not None else self.chain.logits.source()]
        own = (cache for cache in self.chain.caches if cache.name in self.caches and cache.write in graph.writes)
        return [*values, *(graph.writes[cache.write].source() for cache in own)]

    @cached_property
    def outside(self) -> dict[int, Value]:
        """Return cuts outside of it, by node; none if it has no entry."""
        if self.entry is None:
            return {}
        first, last = self.entry.node, self.chain.logits.index if self.exit is None else self.exit.node
        width = fixed_size(self.entry, -1)
        outside = (cut for cut in self.chain.cuts if not first < cut.node <= last)
        return {cut.node: cut for cut in outside if fixed_size(cut, -1) == width}


@dataclass(frozen=True, eq=False)
class Plan:
    """Pairs the parts of two models.

    Attributes:
        parts: A part of the reference with that of the candidate, in order.
        contents: Identities of weights: the reference's and the candidate's.
    """

    parts: tuple[tuple[Part, Part], ...]
    contents: tuple[Contents, Contents]


def plan(reference: Model, candidate: Model) -> Plan | str:
    """Pair the parts of two models, or return the reason if that is impossible."""
    chains = []
    for name, model in (("reference", reference), ("candidate", candidate)):
        chain = _chain(model)
        if isinstance(chain, str):
            return f"the {name} cannot be cut: {chain}"
        chains.append(chain)
    contents = identify(reference, candidate)
    pairs = _paired(chains[0], chains[1], contents)
    if len(pairs) < 2:
        return "no two values between their layers follow the same weights"
    sides = [_parts(chain, [pair[side] for pair in pairs], _starts(chains, pairs)) for side, chain in enumerate(chains)]
    if len(sides[0]) < 2:
        return "all caches lie in one part"
    return Plan(tuple(zip(*sides, strict=True)), contents)


def _chain(model: Model) -> LayerChain | str:
    chain = find_chain(model)
    if not isinstance(chain, str) and fixed_size(chain.tokens, 1) is not None:
        return "it takes a fixed number of tokens, so that parts without caches cannot run"
    return chain


def _paired(
    reference: LayerChain, candidate: LayerChain, contents: tuple[Contents, Contents]
) -> list[tuple[Value, Value]]:
    """Return the values of both models, in order, before which they read the same weights."""
    counts = [
        Counter(content[node] for node in chain.weights if node in content)
        for chain, content in zip((reference, candidate), contents, strict=True)
    ]
    common = {key: hash_of(key) for key, count in counts[0].items() if counts[1][key] == count}
    sums = [_sums(chain, content, common) for chain, content in zip((reference, candidate), contents, strict=True)]
    # The first value after some weights: norms and casts of it that follow may be fused in one model.
    firsts: list[dict[int, Value]] = [{}, {}]
    for side, chain in enumerate((reference, candidate)):
        for total, cut in zip(sums[side], chain.cuts, strict=True):
            firsts[side].setdefault(total, cut)
    return [
        (cut, other)
        for total, cut in firsts[0].items()
        if total and (other := firsts[1].get(total)) is not None and fixed_size(cut, -1) == fixed_size(other, -1)
    ]


def hash_of(key: Hashable) -> int:
    """Return a number that sums of keys hardly ever share."""
    return int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:16])


def _sums(chain: LayerChain, content: Contents, common: Mapping[Hashable, int]) -> list[int]:
    """Return the sum of common weights read up to each cut."""
    pieces = [0] * (len(chain.cuts) + 1)
    for node, piece in chain.weights.items():
        pieces[piece] += common.get(content.get(node), 0)
    sums, total = [], 0
    for piece in pieces[:-1]:
        total += piece
        sums.append(total)
    return sums


def _segments(chain: LayerChain, cuts: list[Value]) -> dict[str, int]:
    """Return the segment between ``cuts`` that each cache lies in."""
    places = {cut: place for place, cut in enumerate(chain.cuts)}
    ends = [places[cut] for cut in cuts]
    return {name: bisect_left(ends, piece) for name, piece in chain.homes.items()}


def _starts(chains: list[LayerChain], pairs: list[tuple[Value, Value]]) -> list[int]:
    """Return the pairs that begin parts: around segments with caches, and after the last layer."""
    segments = [_segments(chain, [pair[side] for pair in pairs]) for side, chain in enumerate(chains)]
    holding = sorted({segment for side in segments for segment in side.values()}) or list(range(len(pairs) + 1))
    # Prompts and steps are the same to a layer after its caches, so it need not go through both.
    starts = {end for segment in holding for end in (segment - 1, segment) if 0 <= end < len(pairs)}
    steps = {later - earlier for earlier, later in pairwise(holding)}
    # The last layer is as long as the one before; head and final norm have a part of their own.
    after = holding[-1] + max(steps, default=len(pairs)) - 1
    return sorted(starts | ({after} if after < len(pairs) else set()))


def _parts(chain: LayerChain, cuts: list[Value], starts: list[int]) -> list[Part]:
    segments = _segments(chain, cuts)
    bounds = [-1, *starts, len(cuts)]
    parts = []
    for first, last in pairwise(bounds):
        entry = cuts[first] if first >= 0 else None
        inside = tuple(name for name, segment in segments.items() if first < segment <= last)
        exit_ = cuts[last] if last < len(cuts) else None
        parts.append(Part(chain, entry, exit_, inside))
    return parts
