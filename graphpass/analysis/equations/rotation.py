"""Show that a query or key is rotated by positions, and compute tables.

Exporters write rotary embedding in many ways. Here the operators between a tensor and its rotated form are computed
for unit vectors, which gives the matrix of each position. It has to rotate pairs, at any position alone as among
others: angles that depend on the longest position of a step have no table.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import numpy

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.step_lengths import POSITIONS
from graphpass.analysis.equations.numbering import find_numbers
from graphpass.analysis.equations.operators import Array
from graphpass.analysis.equations.steps import Step, evaluation_at
from graphpass.ir.graph import Node, Value
from graphpass.ir.inputs import TOKEN_INPUTS
from graphpass.ir.miss import MissError
from graphpass.ir.model import Model
from graphpass.ir.operators import ARITHMETIC, GATHERS, LAYOUT, SHAPE_READERS, SLICES, SPLITS
from graphpass.ir.values import REALS, fixed_size

#: Lie between a projection and its rotated form.
_ROTATES = ARITHMETIC | GATHERS | LAYOUT | SLICES | SPLITS | {"Concat", "Negative", "RotaryEmbedding"}

#: Most operators between them: 26 are in the fixtures.
_MOST = 96

#: Positions whose matrices are computed, and how many positions a part of a table holds.
_SAMPLES, _CHUNK = 6, 1024

#: A number of tokens that no number of heads has.
_UNLIKELY = 10007


@dataclass(frozen=True, slots=True)
class Rotation:
    """A value that is ``source`` rotated by positions.

    Attributes:
        source: ``[batch, heads, length, head_dim]``, or ``[batch, length, heads, head_dim]`` if ``heads_last``.
        result: The rotated value; its heads may be in the other place.
        heads: Number of heads.
        head_dim: Size of a head.
        size: Number of rotated elements of each head, the first ones.
        interleaved: Whether pairs are neighbours; otherwise the two halves.
        counts_slots: Whether positions are places in the cache, not input ``position_ids``.
        signature: Equal for rotations of equal angles.
    """

    source: Value
    result: Value
    heads_last: bool
    heads: int
    head_dim: int
    size: int
    interleaved: bool
    counts_slots: bool
    signature: Hashable


def find_rotation(model: Model, value: Value, size: int) -> Rotation | None:
    """Return the rotation whose result is ``value``, if there is one.

    Args:
        model: The model.
        value: A query or key of four axes.
        size: Size of its heads.
    """
    for source in _sources(model, value):
        try:
            found = _rotation(model, source, value, size)
        except MissError:
            # An operator between this one and the value is not computed ahead; those further away lie before it.
            return None
        if found is not None:
            return found
    return None


def rotation_tables(model: Model, rotation: Rotation, count: int) -> tuple[Array, Array]:
    """Compute the cosines and sines of positions 0 to ``count - 1``, ``[count, size / 2]``.

    Raises:
        MissError: The angles of one position depend on others.
    """
    parts = [
        _angles(model, rotation, numpy.arange(start, min(start + _CHUNK, count))) for start in range(0, count, _CHUNK)
    ]
    cos, sin = (numpy.concatenate([part[place] for part in parts]) for place in (0, 1))
    places = numpy.unique(numpy.linspace(0, count - 1, _SAMPLES).astype(int))
    probes = [places] if not rotation.counts_slots else []
    for probe in (*probes, *(numpy.array([place]) for place in places), numpy.arange(min(count, 2 * _CHUNK))):
        for table, part in zip((cos, sin), _angles(model, rotation, probe), strict=True):
            if not numpy.array_equal(table[probe], part):
                node = model.graph.producer(rotation.result)
                raise MissError(node, f"the angles of position {probe[0]} depend on other positions of the step")
    return cos, sin


def _sources(model: Model, value: Value) -> Iterator[Value]:
    """Yield the values through which all activations reach ``value``, nearest first."""
    graph, data = model.graph, model.analysis(find_activations)
    frontier = {value}
    for _ in range(_MOST):
        last = max(frontier, key=lambda one: one.node)
        node = graph.producer(last)
        if node.op not in _ROTATES:
            return
        frontier.remove(last)
        frontier |= {one for one in node.inputs if one is not None and one.node in data}
        if len(frontier) == 1 and next(iter(frontier)).rank == 4:
            yield next(iter(frontier))
        if not frontier:
            return


def find_activations(model: Model) -> frozenset[int]:
    """Return the nodes whose elements depend on tokens or caches."""
    graph = model.graph
    reads = {cache.read for cache in analyze_caches(model).caches}
    found: set[int] = set()
    for node in graph.nodes:
        starts = node.op in {"Parameter", "ReadValue"} and (node.name in TOKEN_INPUTS or node.name in reads)
        follows = node.op not in SHAPE_READERS and any(one is not None and one.node in found for one in node.inputs)
        if starts or follows:
            found.add(node.index)
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class _Turn:
    """Hold the turn between two values, with the words of `Rotation`."""

    size: int
    interleaved: bool
    matrices: bytes


def _rotation(model: Model, source: Value, result: Value, size: int) -> Rotation | None:
    laid_out = _laid_out(model, source)
    if laid_out is None or fixed_size(source, -1) not in {None, size}:
        return None
    heads_last, heads = laid_out
    between = list(model.graph.backward([result], lambda node: () if node.index == source.node else node.inputs))
    counts_slots = POSITIONS not in {node.name for node in between if node.op == "Parameter"}
    key, known = _structure(model, between, source), model.analysis(_known_turns)
    if key not in known:
        known[key] = _turn(model, Rotation(source, result, heads_last, heads, size, 0, False, counts_slots, None))
    turn = known[key]
    if turn is None:
        return None
    angles = (_angles_of(model, between, source), turn, counts_slots)
    return Rotation(source, result, heads_last, heads, size, turn.size, turn.interleaved, counts_slots, angles)


def _known_turns(model: Model) -> dict[Hashable, _Turn | None]:  # noqa: ARG001
    """Return an empty store, kept until the model is edited: layers do alike."""
    return {}


def _structure(model: Model, between: list[Node], source: Value) -> Hashable:
    """Return equal structures for equal computations on other activations."""
    numbers, data = model.analysis(find_numbers), model.analysis(find_activations)
    places = {(source.node, source.port): -1}
    steps: list[Hashable] = [numbers.of_size(source)]
    for node in sorted(between, key=lambda node: node.index):
        if node.index not in data or node.index == source.node:
            continue
        inputs = tuple(
            None if one is None else places.get((one.node, one.port), ("outside", numbers.of(one)))
            for one in node.inputs
        )
        places |= {(one.node, one.port): len(places) for one in node.outputs}
        steps.append((node.op, tuple((name, repr(given)) for name, given in sorted(node.attributes.items())), inputs))
    return tuple(steps)


def _turn(model: Model, sought: Rotation) -> _Turn | None:
    size, heads = sought.head_dim, sought.heads
    # Axes of heads and of positions differ in size, so that the layout shows.
    length = _SAMPLES + (heads == _SAMPLES)
    places = numpy.arange(3, 3 + length) if sought.counts_slots else numpy.arange(length) ** 3
    units = numpy.eye(size, dtype=_dtype(sought.source))
    rows = _run(model, sought, units, places)
    if rows is None or rows.shape[-1] != size or not (rows == rows[:, :, :1]).all():
        return None
    # By position: row i of a matrix is where element i goes.
    matrices = rows[:, :, 0].transpose(1, 0, 2).astype(numpy.float64)
    for interleaved in (False, True):
        turned = _turned(matrices, interleaved)
        if turned is not None:
            return _Turn(turned, interleaved, matrices.tobytes())
    return None


def _rows(whole: Array, heads: int, length: int) -> Array | None:
    """Return ``[batch, length, heads, head_dim]``."""
    if whole.ndim != 4:
        return None
    if whole.shape[1:3] == (length, heads):
        return whole
    return whole.swapaxes(1, 2) if whole.shape[1:3] == (heads, length) else None


def _angles_of(model: Model, between: list[Node], source: Value) -> Hashable:
    """Return the numbers of what activations are combined with: equal ones are one computation."""
    numbers, data = model.analysis(find_numbers), model.analysis(find_activations)
    sides = (one for node in between if node.index in data and node.index != source.node for one in node.inputs)
    return frozenset(
        numbers.of(one) for one in sides if one is not None and one.node not in data and one.element_type in REALS
    )


def _turned(matrices: Array, interleaved: bool) -> int | None:
    """Return the number of rotated elements, if the matrices rotate pairs."""
    size = matrices.shape[-1]
    unit = numpy.eye(size)
    moved = numpy.flatnonzero((matrices != unit).any(axis=(0, 2)))
    turned = int(moved[-1]) + 1 if len(moved) else 0
    if not turned or turned % 2:
        return None
    half = turned // 2
    first = numpy.arange(0, turned, 2) if interleaved else numpy.arange(half)
    second = first + (1 if interleaved else half)
    cos, sin = matrices[:, first, first], matrices[:, first, second]
    wanted = numpy.broadcast_to(unit, matrices.shape).copy()
    wanted[:, first, first] = wanted[:, second, second] = cos
    wanted[:, first, second], wanted[:, second, first] = sin, -sin
    return turned if numpy.array_equal(wanted, matrices) and sin.any() else None


def _laid_out(model: Model, source: Value) -> tuple[bool, int] | None:
    """Return whether heads come after positions, and their number."""
    shape = evaluation_at(model, Step(1, 0, _UNLIKELY), {}).shape(source)
    if shape is None or len(shape) != 4 or _UNLIKELY not in shape[1:3]:
        return None
    return (True, shape[2]) if shape[1] == _UNLIKELY else (False, shape[1])


def _run(model: Model, rotation: Rotation, held: Array, places: Array) -> Array | None:
    """Rotate each row of ``held``, ``[batch, head_dim]``, to ``places``: ``[batch, length, heads, head_dim]``."""
    # One head does unless a Reshape states their number.
    for heads in dict.fromkeys((1, rotation.heads)):
        length = len(places)
        middle = (length, heads) if rotation.heads_last else (heads, length)
        whole = numpy.broadcast_to(held[:, None, None], (len(held), *middle, held.shape[-1]))
        try:
            found = _rows(_run_heads(model, rotation, whole, places), heads, length)
        except MissError:
            if heads == rotation.heads:
                raise
            continue
        if found is not None and (length != heads or heads == 1):
            return found
    return None


def _run_heads(model: Model, rotation: Rotation, held: Array, places: Array) -> Array:
    positions = model.graph.parameters.get(POSITIONS)
    step = Step(len(held), int(places[0]), len(places))
    given = {rotation.source: held}
    if positions is not None and positions.rank != 2:
        # Text alone has one position along all axes, so that it looks like any other rotation.
        raise MissError(model.graph.producer(positions), "a token has several positions")
    if positions is not None:
        given[positions] = numpy.broadcast_to(places[None], (step.batch, step.length))
    return evaluation_at(model, step, given).of(rotation.result)


def _angles(model: Model, rotation: Rotation, places: Array) -> tuple[Array, Array]:
    """Compute cosines and sines of ``places`` from ones in each pair's first element."""
    size, half = rotation.size, rotation.size // 2
    first = slice(0, size, 2) if rotation.interleaved else slice(0, half)
    second = slice(1, size, 2) if rotation.interleaved else slice(half, size)
    vector = numpy.zeros((1, rotation.head_dim), _dtype(rotation.source))
    vector[:, first] = 1
    rows = _run(model, rotation, vector, places)
    assert rows is not None
    return rows[0, :, 0, first], rows[0, :, 0, second]


def _dtype(value: Value) -> str:
    return {"f16": "float16", "f64": "float64"}.get(value.element_type, "float32")
