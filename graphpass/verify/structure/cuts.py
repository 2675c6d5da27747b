"""Cuts: equal values of both models that are fed in place of everything upstream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphpass.ir.inputs import token_input
from graphpass.ir.operators import NO_DATA, SOURCES
from graphpass.verify.structure.regions import Key, Unequal, form_of, forms_of

if TYPE_CHECKING:
    from graphpass.analysis.symbolic.expressions import Expr
    from graphpass.ir.graph import Graph, Node, Value
    from graphpass.verify.structure.model_tensors import ModelTensors
    from graphpass.verify.structure.tensors import DefinedTensors


@dataclass(frozen=True, slots=True)
class Member:
    """A tensor of one model that a cut replaces.

    Attributes:
        value: The tensor.
        axes: The tensor's axis for each axis of the common form; elements are equal along all other axes.
        sizes: Sizes of the tensor.
    """

    value: Value
    axes: tuple[int, ...]
    sizes: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class CutTensor:
    """A tensor that both models compute, fed to the operators downstream of it.

    Attributes:
        name: Name in the candidate.
        sizes: Sizes of the common form.
        members: Equal tensors of the reference, then those of the candidate.
    """

    name: str
    sizes: tuple[Expr, ...]
    members: tuple[tuple[Member, ...], ...]


def find_cuts(
    sides: Sequence[ModelTensors], results: Sequence[Sequence[Value]], unequal: Unequal
) -> tuple[CutTensor, ...]:
    """Return the cuts from which both models compute the results that are not proven equal.

    Operators upstream of a cut are not part of the rest, because their values would not fit those that are fed. Both
    models must read each cut, because one of them might recompute it from other cuts. A cache that only one model reads
    beside the cuts is upstream of none, for the same reason.

    Args:
        sides: Reference and candidate.
        results: For each model, the values that are not proven equal.
        unequal: The candidate's operators upstream of these.
    """
    keys = {form[0]: value for value in unequal.frontier if (form := form_of(sides[1], value)) is not None}
    members = [_members(tensors, keys) for tensors in sides]
    all_cuts = (_cut(value.name, [member.get(key, []) for member in members]) for key, value in keys.items())
    cuts = [cut for cut in all_cuts if cut is not None]
    data = [_from_data(tensors.graph) for tensors in sides]
    while True:
        count = len(cuts)
        reads = [_caches_read(sides[side], side, results[side], cuts) for side in (0, 1)]
        for side, tensors in enumerate(sides):
            alone = {place for name, place in reads[side].items() if name not in reads[1 - side]}
            cuts = list(_fitting(tensors.graph, side, results[side], cuts, data[side] | alone))
        if len(cuts) == count:
            return tuple(cuts)


def _caches_read(
    tensors: ModelTensors, side: int, results: Iterable[Value], cuts: Iterable[CutTensor]
) -> dict[str, int]:
    """Return indices of nodes that read caches downstream of cuts, by the cache's name."""
    fed = {member.value: None for cut in cuts for member in cut.members[side]}
    nodes = downstream(tensors.graph, results, fed, shapes=False)
    return {leaf.name: node.index for node in nodes if (leaf := tensors.leaf(node)) is not None}


def _members(
    tensors: DefinedTensors, keys: Mapping[Key, Value]
) -> dict[Key, list[tuple[Value, Sequence[Expr], DefinedTensors]]]:
    """Return the tensors with a common form in ``keys``, and its indices, by common form."""
    members: dict[Key, list[tuple[Value, Sequence[Expr], DefinedTensors]]] = {}
    for value, (key, indices) in forms_of(tensors):
        if key in keys:
            members.setdefault(key, []).append((value, indices, tensors))
    return members


def _cut(name: str, sides: Sequence[Sequence[tuple[Value, Sequence[Expr], DefinedTensors]]]) -> CutTensor | None:
    """Return a cut of equal tensors; ``None`` unless both models have a suitable tensor.

    Suitable tensors are f32 and a permutation of the common form's axes. Tensors with merged axes are computed from
    these, or upstream of them.
    """
    members: list[tuple[Member, ...]] = []
    sizes: set[tuple[Expr, ...]] = set()
    for side in sides:
        own: list[Member] = []
        for value, indices, tensors in side:
            places = {index: axis for axis, index in enumerate(tensors.own_index(value))}
            is_source = tensors.graph.producer(value).op in SOURCES
            if is_source or value.element_type != "f32" or not indices or not places.keys() >= set(indices):
                continue
            own.append(Member(value, tuple(places[index] for index in indices), tensors.shape(value)))
            sizes.add(tuple(index.args[1] for index in indices))
        members.append(tuple(own))
    return CutTensor(name, sizes.pop(), tuple(members)) if all(members) and len(sizes) == 1 else None


def _from_data(graph: Graph) -> set[int]:
    """Return indices of operators downstream of tokens or caches, except by shapes and masks."""
    tokens = token_input(graph)
    starts = [node.outputs[0] for node in graph.of_op("ReadValue")]
    starts += [value for value in graph.parameters.values() if value.element_type == "f32" or value == tokens]
    uses = graph.forward(starts, lambda use: () if use.node.op in NO_DATA else use.node.outputs)
    return {use.node.index for use in uses if use.node.op not in NO_DATA | SOURCES}


def _fitting(
    graph: Graph, side: int, results: Iterable[Value], cuts: Sequence[CutTensor], data: set[int]
) -> Iterator[CutTensor]:
    """Yield the cuts that results read, and that no path from upstream bypasses."""
    fed = {member.value: place for place, cut in enumerate(cuts) for member in cut.members[side]}
    reached = list(downstream(graph, results, fed, shapes=False))
    read = {fed[value] for node in reached for value in node.sources if value in fed}
    beside = data & {node.index for node in reached}
    for place, cut in enumerate(cuts):
        values = [member.value for member in cut.members[side]]
        upstream = {node.index for node in downstream(graph, values, {}, shapes=False)}
        if place in read and upstream & data and not upstream & beside:
            yield cut


def downstream(
    graph: Graph, results: Iterable[Value], fed: Mapping[Value, object], *, shapes: bool = True
) -> Iterator[Node]:
    """Return the operators that compute ``results`` from fed values and inputs.

    Args:
        graph: The graph.
        results: The computed values.
        fed: The values that are fed.
        shapes: Whether to include operators of whose results only the shape is read.
    """

    def inputs(node: Node) -> Iterable[Value | None]:
        return () if node.op in NO_DATA and not shapes else (value for value in node.inputs if value not in fed)

    return graph.backward(results, inputs)
