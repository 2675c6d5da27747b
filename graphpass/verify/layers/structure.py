"""Structure of parts, by which one part is run in place of equal ones."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphpass.analysis.caches.chain import LARGEST_PARAMETER, is_weight
from graphpass.dialects.signature import signature
from graphpass.ir.operators import SHAPE_READERS

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from graphpass.ir.cache import Cache
    from graphpass.ir.graph import Node, Value
    from graphpass.verify.identities import Contents
    from graphpass.verify.parts import Part


@dataclass(frozen=True, slots=True)
class Structure:
    """The structure of a part, and its weights.

    Attributes:
        digest: SHA-256 of operators, attributes, types, edges, small constants, and pairs of past and present.
        weights: Indices of the Constants whose values the part reads, in order of execution.
    """

    digest: str
    weights: tuple[int, ...]


def structure_of(part: Part) -> Structure:
    """Return the structure of ``part``, without names."""
    return _Description(part).run()


def weights_alike(structures: tuple[Structure, Structure], contents: tuple[Contents, Contents]) -> Hashable:
    """Return a key of the correspondence of weights in a part of both models.

    Keys of two parts of equal structure are equal if one part can run in place of the other: weights that both models
    have are at corresponding nodes. Weights that only the candidate has, for example rotary tables that all layers
    share, must be the same in both parts. So must the weights that only the reference has, since the candidate's may
    be computed from them.

    Args:
        structures: Structures of the reference's and of the candidate's part.
        contents: Identities of the reference's and of the candidate's weights; weights without one equal no other.
    """
    numbers: dict[Hashable, int] = {}
    reference, candidate = (
        [content.get(node, ("unknown", side, node)) for node in structure.weights]
        for side, (structure, content) in enumerate(zip(structures, contents, strict=True))
    )
    pattern = tuple(numbers.setdefault(key, len(numbers)) for key in (*reference, *candidate))
    known, kept = set(reference), set(candidate)
    made = tuple(key for key in candidate if key not in known)
    lacking = tuple(key for key in reference if key not in kept) if made else ()
    return pattern, made, lacking


class _Description:
    def __init__(self, part: Part) -> None:
        self._part = part
        self._graph = part.chain.graph
        self._places: dict[int, int] = {}
        self._records: list[object] = []
        self._weights: list[int] = []
        self._contents: set[int] = set()
        self._pasts: dict[str, int] = {}
        self._caches = {cache.read: cache for cache in part.chain.caches}

    def run(self) -> Structure:
        part, graph = self._part, self._graph
        end = part.ends[0]
        # Weights of other parts are read for their shapes only.
        self._contents = {node.index for node in graph.backward(part.ends, self._elements)}
        self._walk(end)
        # Caches in the order in which the computation reads them, followed by the others in order of names.
        for cache in sorted(self._own(), key=lambda cache: (self._pasts.get(cache.read, len(self._pasts)), cache.name)):
            if (write := graph.writes.get(cache.write)) is not None:
                self._walk(write.source())
                self._records.append(("write", self._past(cache.read), self._place(write.source())))
        self._records.append(self._place(end))
        return Structure(hashlib.sha256(repr(self._records).encode()).hexdigest(), tuple(self._weights))

    def _own(self) -> list[Cache]:
        return [cache for cache in self._part.chain.caches if cache.name in self._part.caches]

    def _elements(self, node: Node) -> tuple[Value | None, ...]:
        return () if node.op in SHAPE_READERS else self._part.sources(node)

    def _sources(self, node: Node) -> list[Value | None]:
        """Return the inputs of ``node``, or those of Identities that compute them."""
        # Exporters store equal weights of several layers once, which the others read through an Identity.
        return [None if value is None else self._made(value) for value in self._part.sources(node)]

    def _made(self, value: Value) -> Value:
        while (node := self._graph.nodes[value.node]).op == "Identity" and value.node not in self._part.outside:
            value = node.source()
        return value

    def _walk(self, end: Value) -> None:
        def inside(node: Node) -> list[Value]:
            values = [] if node.index in self._places else self._sources(node)
            return [value for value in values if value is not None and self._only_shape(node, value) is None]

        for node in self._graph.operands_first([end], inside):
            if node.index not in self._places:
                self._places[node.index] = len(self._records)
                self._records.append(self._record(node, self._sources(node)))

    def _record(self, node: Node, sources: Iterable[Value | None]) -> object:
        types = [(value.element_type, _fixed(value)) for value in node.outputs]
        read = [value and (self._only_shape(node, value) or self._place(value)) for value in sources]
        if node.op == "Constant":
            if is_weight(node):
                if node.index in self._contents:
                    self._weights.append(node.index)
                return "weight", types
            constant = self._graph.constant(node.outputs[0], LARGEST_PARAMETER)
            return "constant", types, node.name if constant is None else (constant.shape, constant.tobytes())
        if node.op in {"Parameter", "ReadValue"}:
            if node.name not in self._part.reads:
                cache = self._caches[node.name]
                return "zeros", types, (cache.axes.batch, cache.axes.sequence)
            return node.op, self._past(node.name) if node.name in self._caches else node.name, types, read
        if node.index in self._part.outside:
            return "stream", types, read, signature(node) if read else None
        return node.op, signature(node) or node.name, types, read

    def _only_shape(self, user: Node, value: Value) -> object:
        """Return the shape of a cache or cut that ``user`` reads; else ``None``.

        Which cache or cut it is makes no difference: in a part all caches have the past's length, and all cuts the
        number of new tokens.
        """
        if user.op not in SHAPE_READERS:
            return None
        beams = self._graph.parameters.get("beam_idx")
        read = self._graph.look_through(value, lambda node: node.op == "Gather" and node.inputs[1] == beams)
        cache = self._caches.get(self._graph.nodes[read.node].name)
        if cache is not None:
            return "past", read == value, cache.axes.batch, cache.axes.sequence, _fixed(value)
        return ("stream", _fixed(value)) if value.node in self._part.outside else None

    def _place(self, value: Value) -> tuple[int, int]:
        return self._places[value.node], value.port

    def _past(self, name: str) -> int:
        return self._pasts.setdefault(name, len(self._pasts))


def _fixed(value: Value) -> object:
    return value.shape and [size if isinstance(size, int) else None for size in value.shape]
