"""Pair the layers of two models by the weights that they read."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from graphpass.analysis.caches.chain import LayerChain, find_chain, is_after_sum, is_sum
from graphpass.ir.values import fixed_size
from graphpass.verify.identities import Contents, identify

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from graphpass.ir.graph import Node, Value
    from graphpass.ir.model import Model


@dataclass(frozen=True, eq=False)
class Part:
    """A part of one model.

    Attributes:
        chain: The values between the layers of the model.
        entry: First value of the part; ``None`` for the tokens.
        exit: Last value of the part; ``None`` for the logits.
        caches: Names of the part's caches.
    """

    chain: LayerChain
    entry: Value | None
    exit: Value | None
    caches: tuple[str, ...]

    @cached_property
    def reads(self) -> frozenset[str]:
        """Return the names of inputs and ReadValues except caches of other parts."""
        others = {cache.read for cache in self.chain.caches if cache.name not in self.caches}
        return frozenset(self.chain.graph.reads.keys() - others)

    @property
    def ends(self) -> list[Value]:
        """Return the last value, followed by the values written to the part's caches."""
        graph = self.chain.graph
        values = [self.exit if self.exit is not None else self.chain.logits.source()]
        own = (cache for cache in self.chain.caches if cache.name in self.caches and cache.write in graph.writes)
        return [*values, *(graph.writes[cache.write].source() for cache in own)]

    @cached_property
    def outside(self) -> dict[int, Value]:
        """Return the cuts outside of the part, of its width, by node; empty without ``entry``."""
        if self.entry is None:
            return {}
        first, last = self.entry.node, self.chain.logits.index if self.exit is None else self.exit.node
        width = fixed_size(self.entry, -1)
        outside = (cut for cut in self.chain.cuts if not first < cut.node <= last)
        return {cut.node: cut for cut in outside if fixed_size(cut, -1) == width}

    def sources(self, node: Node) -> tuple[Value | None, ...]:
        """Return the inputs of a node from which the part computes its values.

        Args:
            node: A node upstream of the part's ends, in the graph of the whole model.
        """
        graph = self.chain.graph
        if node.op in {"Parameter", "ReadValue"}:
            return node.inputs if node.name in self.reads else ()
        if node.index in self.outside:
            sums = is_sum(graph, self.outside[node.index])
            return tuple(value for port, value in enumerate(node.inputs) if sums and is_after_sum(node, port))
        if self.exit is not None and node.index == self.exit.node and is_sum(graph, self.exit):
            return tuple(value for port, value in enumerate(node.inputs) if not is_after_sum(node, port))
        return node.inputs


@dataclass(frozen=True, eq=False)
class Plan:
    """Paired parts of two models.

    Attributes:
        parts: Pairs of a part of the reference and a part of the candidate, in order.
        contents: Identities of the reference's and of the candidate's weights.
    """

    parts: tuple[tuple[Part, Part], ...]
    contents: tuple[Contents, Contents]


def plan(reference: Model, candidate: Model) -> Plan | str:
    """Pair the parts of two models.

    Args:
        reference: The reference model.
        candidate: The candidate model, with weights in common with the reference, by which parts are paired.

    Returns:
        The pairs; the reason if a model has no parts or no common ones.

    Raises:
        ReadError: As `identify`.
    """
    chains = []
    for name, model in (("reference", reference), ("candidate", candidate)):
        chain = _chain(model)
        if isinstance(chain, str):
            return f"the {name} cannot be cut: {chain}"
        chains.append(chain)
    contents = identify(reference, candidate)
    pairs = _paired(chains[0], chains[1], contents)
    if len(pairs) < 2:
        return "no values between layers have the same weights upstream in both models"
    sides = [_parts(chain, [pair[side] for pair in pairs], _starts(chains, pairs)) for side, chain in enumerate(chains)]
    if len(sides[0]) < 2:
        return "all caches are in one part"
    return Plan(tuple(zip(*sides, strict=True)), contents)


def _chain(model: Model) -> LayerChain | str:
    chain = find_chain(model)
    if not isinstance(chain, str) and fixed_size(chain.tokens, 1) is not None:
        return "the number of new tokens is fixed, so that parts without caches cannot run"
    return chain


def _paired(
    reference: LayerChain, candidate: LayerChain, contents: tuple[Contents, Contents]
) -> list[tuple[Value, Value]]:
    """Return pairs of cuts, in order, upstream of which both models read the same weights."""
    counts = [
        Counter(content[node] for node in chain.weights if node in content)
        for chain, content in zip((reference, candidate), contents, strict=True)
    ]
    common = {key: hash_of(key) for key, count in counts[0].items() if counts[1][key] == count}
    sums = [_sums(chain, content, common) for chain, content in zip((reference, candidate), contents, strict=True)]
    # Several cuts may have the same weights upstream. The first is used: norms and casts after it may be fused.
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
    """Return a hash of 128 bits, so that sums of different hashes hardly ever coincide."""
    return int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:16], "big")


def _sums(chain: LayerChain, content: Contents, common: Mapping[Hashable, int]) -> list[int]:
    """Return the sum of hashes of the common weights upstream of each cut."""
    pieces = [0] * (len(chain.cuts) + 1)
    for node, piece in chain.weights.items():
        pieces[piece] += common.get(content.get(node), 0)
    sums, total = [], 0
    for piece in pieces[:-1]:
        total += piece
        sums.append(total)
    return sums


def _segments(chain: LayerChain, cuts: list[Value]) -> dict[str, int]:
    """Return the index of the segment between ``cuts`` that contains each cache, by name."""
    places = {cut: place for place, cut in enumerate(chain.cuts)}
    ends = [places[cut] for cut in cuts]
    return {name: bisect_left(ends, piece) for name, piece in chain.homes.items()}


def _starts(chains: list[LayerChain], pairs: list[tuple[Value, Value]]) -> list[int]:
    """Return the pairs at which parts begin: around segments with caches, and before the head."""
    segments = [_segments(chain, [pair[side] for pair in pairs]) for side, chain in enumerate(chains)]
    holding = sorted({segment for side in segments for segment in side.values()}) or list(range(len(pairs) + 1))
    # Feed-forward networks are parts of their own: they depend on the current tokens only, and need few steps.
    starts = {end for segment in holding for end in (segment - 1, segment) if 0 <= end < len(pairs)}
    steps = {later - earlier for earlier, later in pairwise(holding)}
    # The last layer has as many segments as the longest; final norm and head are a separate part.
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
