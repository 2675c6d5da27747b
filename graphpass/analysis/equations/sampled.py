"""Compute masks and angles of one sampled step, where expressions are not conclusive.

Activations are not computed, so long steps require little memory.
"""

from __future__ import annotations

import numpy

from graphpass.analysis.attention.effective_mask import visible_by_attributes
from graphpass.analysis.attention.mask import Scope
from graphpass.analysis.attention.types import OPERATORS, Mask
from graphpass.analysis.caches.step_lengths import MASK, POSITIONS
from graphpass.analysis.equations.angles import Angles, PositionTable
from graphpass.analysis.equations.evaluation import Evaluation, SampledStep, evaluation_at
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import UnknownError
from graphpass.analysis.symbolic.evaluate import arrays_at
from graphpass.analysis.symbolic.expressions import ZERO, Expr, number
from graphpass.analysis.symbolic.rounding import DTYPES, Array
from graphpass.ir.graph import Node, Value
from graphpass.ir.inputs import PAST_LENGTH
from graphpass.ir.miss import Miss, MissError
from graphpass.ir.model import Model
from graphpass.ir.values import MASKED_BELOW


def step_at(model: Model, step: SampledStep) -> Evaluation:
    """Return an evaluation of one step without padding.

    Args:
        model: The model; its inputs of masks, positions and lengths are set, others are unknown.
        step: Lengths of the step.
    """
    inputs = model.graph.parameters
    # Tokens of text have the same position along each axis of multi-axis positions.
    shape = inputs[POSITIONS].shape or () if POSITIONS in inputs else ()
    axes = tuple(size for size in shape[:-2] if isinstance(size, int))
    made = {
        MASK: numpy.ones((step.batch, step.total)),
        POSITIONS: numpy.broadcast_to(numpy.arange(step.past, step.total), (*axes, step.batch, step.length)),
        "cache_position": numpy.arange(step.past, step.total),
        PAST_LENGTH: numpy.array([step.past]),
    }
    known = {
        inputs[name]: array.astype(DTYPES[inputs[name].element_type])
        for name, array in made.items()
        if name in inputs and inputs[name].rank == array.ndim
    }
    return evaluation_at(model, step, known)


def visible_at(node: Node, masks: tuple[Mask, ...] | Miss, step: SampledStep, evaluation: Evaluation) -> Array:
    """Compute the effective mask as a bias of the scores, -inf for masked keys.

    Args:
        node: The attention, or its Softmax.
        masks: Its masks, as `find_score_masks` returns them.
        step: The lengths of ``evaluation``.
        evaluation: Computes tensors of the step.

    Returns:
        ``[batch or 1, heads or 1, length, total]``.

    Raises:
        MissError: A mask cannot be computed, or its shape does not fit the lengths of the step.
    """
    if isinstance(masks, Miss):
        raise MissError(masks.node, masks.reason)
    added = _by_attributes(node, step, evaluation)
    for mask in masks:
        term = _added(mask, step, evaluation)
        if term.ndim > 4 or any(
            size not in {1, full} for size, full in zip(term.shape[::-1], (step.total, step.length), strict=False)
        ):
            raise MissError(
                node, f"its mask has shape {list(term.shape)} for {step.length} queries and {step.total} keys"
            )
        added = added + term
    return numpy.where(added < MASKED_BELOW, -numpy.inf, added)


def columns_at(angles: Angles, step: SampledStep, evaluation: Evaluation) -> Array:
    """Compute the rows of all tables for the step's positions.

    Args:
        angles: Angles of an attention, or learned positions; the channels of all tables are concatenated in order.
        step: The lengths of ``evaluation``.
        evaluation: Computes tensors of the step.

    Returns:
        The rows, f64 ``[length, channels]``.

    Raises:
        MissError: A table cannot be computed.
    """
    columns = [_rows(table, step, evaluation) for table in angles.tables]
    return numpy.concatenate([numpy.zeros((step.length, 0)), *columns], axis=1)


def _by_attributes(node: Node, step: SampledStep, evaluation: Evaluation) -> Array:
    """Return 0 or -inf by the operator's attributes and lengths, ``[batch or 1, 1, length, total]``.

    Raises:
        MissError: The condition is unknown.
    """
    shape = 1, 1, step.length, step.total
    if node.op not in OPERATORS:
        return numpy.zeros(shape)
    query, key = ex.index("query", number(step.length)), ex.index("key", number(step.total))
    values = {query: numpy.arange(step.length)[:, None], key: numpy.arange(step.total)}

    def of_row(value: Value) -> Expr:
        row = ex.length(value.name)
        values[row] = evaluation.of(value).reshape(-1, 1, 1, 1)
        return row

    try:
        visible = visible_by_attributes(node, Scope(ZERO, ZERO, query, key), of_row)
    except UnknownError as error:
        raise MissError(node, str(error)) from error
    return numpy.where(arrays_at(visible, values), numpy.zeros(shape), -numpy.inf)


def _added(mask: Mask, step: SampledStep, evaluation: Evaluation) -> Array:
    array = evaluation.of(mask.value)
    if mask.merges_heads:
        array = array.reshape(step.batch, -1, *array.shape[1:])
    if mask.keeps is not None:
        return numpy.where(array.astype(bool) == mask.keeps, 0.0, -numpy.inf)
    added = (-array if mask.is_subtracted else array).astype(numpy.float64)
    for scale in mask.scales:
        factor = scale.factor(evaluation.graph)
        if factor is None:
            raise MissError(evaluation.graph.producer(mask.value), f"its scale {scale.name} is computed")
        added = numpy.where(added < MASKED_BELOW, added, added * factor)
    return added


def _rows(table: PositionTable, step: SampledStep, evaluation: Evaluation) -> Array:
    array = evaluation.of(table.value)
    if table.axis is None:
        places = numpy.arange(step.past, step.total) if table.positions is None else evaluation.of(table.positions)
        # A tensor of one element is the first new position, see com.microsoft.RotaryEmbedding.
        places = places.reshape(-1) + (numpy.arange(step.length) if places.size == 1 else 0)
        if array.ndim > 2:
            raise MissError(evaluation.graph.producer(table.value), "its table is not [positions, channels]")
        if int(places.max()) >= len(array):
            raise MissError(evaluation.graph.producer(table.value), f"its table ends at {len(array)} positions")
        array, axis = array[places], 0
    else:
        axis = table.axis
        if array.shape[axis : axis + 1] != (step.length,):
            raise MissError(
                evaluation.graph.producer(table.value),
                f"its shape is {list(array.shape)} for {step.length} new positions",
            )
    rows: Array = numpy.moveaxis(array, axis, 0).reshape(step.length, -1).astype(numpy.float64)
    return rows
