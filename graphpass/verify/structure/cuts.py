"""Find equal values at which both models can be cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphpass.ir.inputs import token_input
from graphpass.ir.operators import NO_DATA, SOURCES
from graphpass.verify.structure.regions import Key, Unequal, form_of, forms_of
from graphpass.verify.structure.tensors import DefinedTensors

if TYPE_CHECKING:
    from graphpass.analysis.symbolic.expressions import Expr
    from graphpass.ir.graph import Graph, Node, Value


@dataclass(frozen=True, slots=True)
class Member:
    """A tensor of one model that a cut replaces.

    Attributes:
        value: The tensor.
        axes: Its axis for each index of the common form; it is the same along others.
        sizes: Its sizes.
    """

    value: Value
    axes: tuple[int, ...]
    sizes: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class CutTensor:
    """A tensor that both models compute, and that is fed to what follows in both.

    Attributes:
        name: Its name in the candidate.
        sizes: Sizes of the common form.
        members: The reference's tensors, which are equal to one another, and the candidate's.
    """

    name: str
    sizes: tuple[Expr, ...]
    members: tuple[tuple[Member, ...], ...]


def find_cuts(
    sides: Sequence[DefinedTensors], results: Sequence[Sequence[Value]], unequal: Unequal
) -> tuple[CutTensor, ...]:
    """Return cuts from which both models compute unequal results.

    Nothing may be computed beside a cut that is upstream of it, as it would not fit the numbers there; and both models
    have to read each cut, as one might compute it again from others.

    Args:
        sides: Both models.
        results: Values of each that are not shown to be equal.
        unequal: The candidate's operators upstream of them.
    """
    keys = {form[0]: value for value in unequal.frontier if (form := form_of(sides[1], value)) is not None}
    members = [_members(tensors, keys) for tensors in sides]
    all_cuts = (_cut(value.name, [member.get(key, []) for member in members]) for key, value in keys.items())
    cuts = [cut for cut in all_cuts if cut is not None]
    data = [_from_data(tensors.graph) for tensors in sides]
    while True:
        count = len(cuts)
        for side, tensors in enumerate(sides):
            cuts = list(_fitting(tensors.graph, side, results[side], cuts, data[side]))
        if len(cuts) == count:
            return tuple(cuts)


def _members(
    tensors: DefinedTensors, keys: Mapping[Key, Value]
) -> dict[Key, list[tuple[Value, Sequence[Expr], DefinedTensors]]]:
    """Return the tensors that are one of some, with the indices of their common form."""
    members: dict[Key, list[tuple[Value, Sequence[Expr], DefinedTensors]]] = {}
    for value, (key, indices) in forms_of(tensors):
        if key in keys:
            members.setdefault(key, []).append((value, indices, tensors))
    return members


def _cut(name: str, sides: Sequence[Sequence[tuple[Value, Sequence[Expr], DefinedTensors]]]) -> CutTensor | None:
    """Return a cut of equal tensors; ``None`` if one model has no fit one.

    Fit tensors are the common form with axes exchanged. Others, such as those with merged axes, are computed from
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
    """Return the operators that compute with tokens or caches, shapes and masks aside."""
    tokens = token_input(graph)
    starts = [node.outputs[0] for node in graph.of_op("ReadValue")]
    starts += [value for value in graph.parameters.values() if value.element_type == "f32" or value == tokens]
    uses = graph.forward(starts, lambda use: () if use.node.op in NO_DATA else use.node.outputs)
    return {use.node.index for use in uses if use.node.op not in NO_DATA}


def _fitting(
    graph: Graph, side: int, results: Iterable[Value], cuts: Sequence[CutTensor], data: set[int]
) -> Iterator[CutTensor]:
    """Yield the cuts that results need and that nothing upstream goes around."""
    fed = {member.value: place for place, cut in enumerate(cuts) for member in cut.members[side]}
    reached = [node for node in downstream(graph, results, fed, shapes=False) if node.op not in SOURCES]
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
    """Yield the operators that compute ``results`` from values that are fed, and from inputs.

    Args:
        graph: The graph.
        results: The values that they compute.
        fed: The values that are fed.
        shapes: Whether operators are among them whose results' shapes alone are read.
    """

    def inputs(node: Node) -> Iterable[Value | None]:
        return () if node.op in NO_DATA and not shapes else (value for value in node.inputs if value not in fed)

    return graph.backward(results, inputs)
