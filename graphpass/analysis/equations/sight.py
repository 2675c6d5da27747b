"""Compute the positions that each attention sees, and numbers that positions give its operands.

Both are functions of lengths, positions and the padding mask, in decomposed attention, in a mask that an operator
reads, and in attributes of an operator alike. Computing them takes no activations, so that lengths cost little at which
a whole model takes gigabytes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import numpy

from graphpass.analysis.attention.find import Scores, find_attention, read_scores
from graphpass.analysis.attention.operands import scores_product
from graphpass.analysis.attention.operators import operator_window
from graphpass.analysis.attention.types import OPERATORS, Attention, Mask
from graphpass.analysis.caches.step_lengths import MASK, POSITIONS
from graphpass.analysis.equations.evaluation import Evaluation
from graphpass.analysis.equations.numbering import find_numbers
from graphpass.analysis.equations.operators import Array
from graphpass.analysis.equations.rotation import find_activations
from graphpass.analysis.equations.steps import Step, evaluation_at
from graphpass.ir.constants import fold_scalar
from graphpass.ir.folding import DTYPES
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.inputs import PAST_LENGTH
from graphpass.ir.model import Model
from graphpass.ir.operators import ARITHMETIC, GATHERS, LAYOUT, NEW_TOKENS, SLICES, SPLITS
from graphpass.ir.pattern import Miss, MissError
from graphpass.ir.values import MASKED_BELOW, REALS

#: Lie between projections and scores.
_ON_THE_WAY = ARITHMETIC | GATHERS | LAYOUT | SLICES | SPLITS | {"Concat", "Negative"}

#: Operators that rotate by tables of cosines and sines.
_ROTARY = frozenset({"RotaryEmbedding", "com.microsoft.RotaryEmbedding", "GroupQueryAttention"})

#: GroupQueryAttention's positions, cosines and sines.
_GROUPED = 9, 7, 8

#: Operators with one meaning of attributes and lengths.
_KNOWN = frozenset({"Attention", "GroupQueryAttention", "MultiHeadAttention", "ScaledDotProductAttention"})

#: A step whose lengths show in shapes: 3 positions before 7 new ones.
_PROBE = Step(1, 3, 7)


@dataclass(frozen=True, slots=True)
class Table:
    """Numbers of each new position.

    Attributes:
        value: The numbers, or a table with a row for each position there is.
        axis: Axis of the new positions in ``value``, if it has one.
        positions: Input that chooses rows; without it and ``axis`` positions are places in the cache.
    """

    value: Value
    axis: int | None = None
    positions: Value | None = None


@dataclass(frozen=True, slots=True)
class Sight:
    """One attention as a function of lengths and positions.

    Attributes:
        node: The operator, or the Softmax.
        masks: Tensors that hide positions, or are added to scores.
        tables: Numbers that positions give query and keys: cosines, sines, factors.
        signature: Equal for attention of one model that sees alike.
        miss: Reason that its masks are not known.
    """

    node: Node
    masks: tuple[Mask, ...]
    tables: tuple[Table, ...]
    signature: Hashable
    miss: Miss | None = None


def find_sights(model: Model) -> tuple[Sight, ...]:
    """Describe each attention that `find_attention` finds, in order, for `Model.analysis`."""
    return tuple(_sight(model, attention) for attention in model.analysis(find_attention))


def find_learned_positions(model: Model) -> tuple[Sight, ...]:
    """Describe each sum of hidden states and learned positions, in order, for `Model.analysis`."""
    graph, data = model.graph, model.analysis(find_activations)
    numbers = model.analysis(find_numbers)
    masks = {mask.value for sight in model.analysis(find_sights) for mask in sight.masks}
    found = []
    for node in graph.of_op("Add"):
        for value in node.inputs if node.index in data else ():
            if value is None or value.node in data or value in masks:
                continue
            lookup = graph.producer(graph.look_through(value, LAYOUT))
            table = lookup.input(0) if lookup.op in GATHERS else None
            if table is not None and table.rank == 2 and graph.producer(table).op == "Constant":
                axis = _axis_of_positions(value, step_at(model, _PROBE))
                if axis is not None:
                    found.append(Sight(node, (), (Table(value, axis),), numbers.of(value)))
    return tuple(found)


def step_at(model: Model, step: Step) -> Evaluation:
    """Return the tensors of one step without padding."""
    inputs = model.graph.parameters
    # Text has the same position along each axis, if tokens have several.
    shape = inputs[POSITIONS].shape or () if POSITIONS in inputs else ()
    axes = tuple(size for size in shape[:-2] if isinstance(size, int))
    made = {
        MASK: numpy.ones((step.batch, step.total)),
        POSITIONS: numpy.broadcast_to(numpy.arange(step.past, step.total), (*axes, step.batch, step.length)),
        "cache_position": numpy.arange(step.past, step.total),
        PAST_LENGTH: numpy.array([step.past]),
    }
    given = {
        inputs[name]: array.astype(DTYPES[inputs[name].element_type])
        for name, array in made.items()
        if name in inputs and inputs[name].rank == array.ndim
    }
    return evaluation_at(model, step, given)


def visible_at(sight: Sight, step: Step, evaluation: Evaluation) -> Array:
    """Compute the numbers added to scores, -inf for hidden positions.

    Args:
        sight: The attention.
        step: The lengths of ``evaluation``.
        evaluation: Computes tensors of the step.

    Returns:
        ``[batch or 1, heads or 1, length, total]``; each row is 0 at its last visible position, since Softmax ignores a
        number added to all.

    Raises:
        MissError: A mask cannot be computed, or holds other positions than those of the step.
    """
    if sight.miss is not None:
        raise MissError(sight.miss.node, sight.miss.reason)
    added = _by_attributes(sight.node, step, evaluation)
    for mask in sight.masks:
        one = _added(mask, step, evaluation)
        if one.ndim > 4 or any(
            size not in {1, full} for size, full in zip(one.shape[::-1], (step.total, step.length), strict=False)
        ):
            raise MissError(sight.node, f"its mask is {list(one.shape)} for {step.length} of {step.total} positions")
        added = added + one
    added = numpy.where(added < MASKED_BELOW, -numpy.inf, added)
    last = step.total - 1 - numpy.argmax(numpy.isfinite(added)[..., ::-1], axis=-1)
    anchor = numpy.take_along_axis(added, last[..., None], axis=-1)
    return added - numpy.where(numpy.isfinite(anchor), anchor, 0)


def columns_at(sight: Sight, step: Step, evaluation: Evaluation) -> Array:
    """Compute the numbers that positions give query and keys, ``[length, numbers]``.

    Raises:
        MissError: They cannot be computed.
    """
    found = [_rows(table, step, evaluation) for table in sight.tables]
    return numpy.concatenate([numpy.zeros((step.length, 0)), *found], axis=1)


def _sight(model: Model, attention: Attention) -> Sight:
    graph, node = model.graph, attention.node
    masks, miss = _masks(graph, attention)
    tables = tuple(_tables(model, attention))
    numbers = model.analysis(find_numbers)
    signature = (
        tuple((numbers.of(mask.value), mask.keeps, mask.is_subtracted, mask.merges_heads) for mask in masks),
        frozenset((numbers.of(one.value), one.positions and numbers.of(one.positions)) for one in tables),
        attention.is_fused and (node.op, repr(sorted(node.attributes.items())), *map(numbers.of, _lengths(node))),
    )
    return Sight(node, masks, tables, signature if miss is None else node.name, miss)


def _masks(graph: Graph, attention: Attention) -> tuple[tuple[Mask, ...], Miss | None]:
    node = attention.node
    if not attention.is_fused:
        scores = read_scores(graph, node)
        return (tuple(scores.masks), None) if isinstance(scores, Scores) else ((), scores)
    ports, found = OPERATORS[node.op], []
    if node.op not in _KNOWN:
        return (), Miss(node, f"the positions that {node.op} sees are not computed ahead")
    for port in ports.masks:
        value = node.input(port)
        if value is None:
            continue
        if value.rank is None or value.rank < 2:
            return (), Miss(node, f"its mask {value.name} is no mask of positions")
        found.append(Mask.of_operator(value))
    return tuple(found), None


def _lengths(node: Node) -> list[Value]:
    ports = OPERATORS[node.op].lengths if node.op in OPERATORS else ()
    return [value for port in ports if (value := node.input(port)) is not None]


def _by_attributes(node: Node, step: Step, evaluation: Evaluation) -> Array:
    """Return 0 at positions that an operator sees by itself, -inf at others, ``[batch or 1, 1, length, total]``."""
    keys: Array = numpy.arange(step.total)
    queries: Array = numpy.arange(step.past, step.total)[:, None]
    seen = numpy.ones((1, 1, step.length, step.total), bool)
    if node.op not in OPERATORS:
        return numpy.where(seen, 0.0, -numpy.inf)
    is_causal = OPERATORS[node.op].hides_later(node)
    if is_causal and node.op == "ScaledDotProductAttention" and step.past:
        raise MissError(node, "kernels disagree on causal attention after a past")
    for value in _lengths(node):
        counted = evaluation.of(value).reshape(-1, 1, 1, 1)
        # GroupQueryAttention is given the number less one, see docs/ContribOperators.md of ONNX Runtime.
        counted = counted + 1 if node.op == "GroupQueryAttention" else counted
        seen = seen & (keys < counted)
        queries = numpy.arange(step.length)[:, None] + (counted - _new_tokens(node, step, evaluation))
    if is_causal:
        seen = seen & (keys <= queries)
    window = operator_window(node)
    if window is not None:
        seen = seen & (keys > queries - window)
    return numpy.where(seen, 0.0, -numpy.inf)


def _new_tokens(node: Node, step: Step, evaluation: Evaluation) -> Array | int:
    """Return the number of new tokens of each row, ``[batch, 1, 1, 1]`` if they differ."""
    told = node.input(NEW_TOKENS) if node.op == "GroupQueryAttention" else None
    return step.length if told is None else evaluation.of(told).reshape(-1, 1, 1, 1)


def _added(mask: Mask, step: Step, evaluation: Evaluation) -> Array:
    held = evaluation.of(mask.value)
    if mask.merges_heads:
        held = held.reshape(step.batch, -1, *held.shape[1:])
    if mask.keeps is not None:
        return numpy.where(held.astype(bool) == mask.keeps, 0.0, -numpy.inf)
    added = (-held if mask.is_subtracted else held).astype(numpy.float64)
    for scale in mask.scales:
        factor = fold_scalar(evaluation.graph, scale.value)
        if not factor:
            raise MissError(evaluation.graph.producer(mask.value), f"its scale {scale.value.name} is computed")
        added = numpy.where(added < MASKED_BELOW, added, added / factor if scale.divides else added * factor)
    return added


def _tables(model: Model, attention: Attention) -> Iterator[Table]:
    """Yield numbers on the way from projections to the scores that depend on positions."""
    graph, data = model.graph, model.analysis(find_activations)
    starts = [attention.query, attention.key]
    if attention.miss is not None:
        product = scores_product(graph, attention.node)
        starts = [] if product is None else list(product.inputs)

    def operands(node: Node) -> tuple[Value | None, ...]:
        if node.op in _ROTARY:
            return node.inputs[:1]
        return (
            tuple(one for one in node.inputs if one is not None and one.node in data) if node.op in _ON_THE_WAY else ()
        )

    probe = step_at(model, _PROBE)
    seen: set[Value] = set()
    if attention.node.op == "GroupQueryAttention":
        yield from _looked_up(attention.node)
    for node in graph.backward(starts, operands):
        if node.index not in data:
            continue
        if node.op in _ROTARY:
            yield from _looked_up(node)
        for value in node.inputs if node.op in ARITHMETIC else ():
            if value is None or value.node in data or value.element_type not in REALS or value in seen:
                continue
            seen.add(value)
            if graph.producer(value).op != "Constant":
                axis = _axis_of_positions(value, probe)
                if axis is not None:
                    yield Table(value, axis)


def _axis_of_positions(value: Value, probe: Evaluation) -> int | None:
    try:
        shape = probe.of(value).shape
    except MissError:
        # Computing it raises the same error again, at each step.
        return 0
    return shape.index(_PROBE.length) if _PROBE.length in shape else None


def _looked_up(node: Node) -> Iterator[Table]:
    given = [node.input(port) for port in _GROUPED] if node.op == "GroupQueryAttention" else list(node.inputs[1:])
    present = [value for value in given if value is not None]
    positions = next((value for value in present if value.element_type not in REALS), None)
    for value in present:
        if value.element_type in REALS:
            # Without positions, tables have a row for each new one.
            yield Table(value, 1 if value.rank == 3 else None, positions)


def _rows(table: Table, step: Step, evaluation: Evaluation) -> Array:
    held = evaluation.of(table.value)
    if table.axis is None:
        places = numpy.arange(step.past, step.total) if table.positions is None else evaluation.of(table.positions)
        # A single number is the first new position, see com.microsoft.RotaryEmbedding.
        places = places.reshape(-1) + (numpy.arange(step.length) if places.size == 1 else 0)
        if held.ndim > 2:
            raise MissError(evaluation.graph.producer(table.value), "its table has rows for each sequence")
        if int(places.max()) >= len(held):
            raise MissError(evaluation.graph.producer(table.value), f"its table ends at {len(held)} positions")
        held, axis = held[places], 0
    else:
        axis = table.axis
        if held.shape[axis : axis + 1] != (step.length,):
            raise MissError(
                evaluation.graph.producer(table.value), f"it has {list(held.shape)} for {step.length} positions"
            )
    found: Array = numpy.moveaxis(held, axis, 0).reshape(step.length, -1).astype(numpy.float64)
    return found
