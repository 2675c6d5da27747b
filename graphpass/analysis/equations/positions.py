"""Find the tensors in which a model counts the positions of the new tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.masks import find_elements
from graphpass.analysis.caches.step_lengths import MASK
from graphpass.analysis.equations.activations import find_activations
from graphpass.analysis.equations.rotation import QUERY, ROW
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Elements, Index, UnknownError
from graphpass.analysis.symbolic.expressions import ONE, TRUE, ZERO, Expr
from graphpass.analysis.symbolic.step import BATCH, LENGTH, PAST
from graphpass.ir.graph import Value
from graphpass.ir.model import Model


@dataclass(frozen=True, slots=True)
class PositionRow:
    """Positions of the new tokens, computed by the model.

    Attributes:
        value: The tensor; axes other than batch and length have size 1.
        batch: Axis of the batch, which may also have size 1.
        length: Axis of the new tokens.
    """

    value: Value
    batch: int
    length: int


def find_position_rows(model: Model) -> tuple[PositionRow, ...]:
    """Return all tensors of counted positions, in execution order, for `Model.analysis`.

    The position of a token is its slot, or the number of tokens before it that the mask does not hide.
    """
    activations, elements = model.analysis(find_activations), model.analysis(find_elements)
    slot = ex.add(PAST, QUERY) if analyze_caches(model).caches else QUERY
    return tuple(
        row
        for node in model.graph.nodes
        if node.index not in activations and node.op not in {"Constant", "Parameter"}
        for value in node.outputs
        for row in _rows(elements, value)
        if _is_position(elements.of(value, _index(elements, row)), slot)
    )


def _rows(elements: Elements, value: Value) -> Iterator[PositionRow]:
    """Yield the axes of batch and length if all others have size 1."""
    if value.element_type == "boolean" or (value.rank or 0) < 2:
        return
    try:
        sizes = elements.shape(value)
    except UnknownError:
        return
    if {*sizes} <= {ONE, BATCH, LENGTH} and sizes.count(LENGTH) == 1 and sizes.count(BATCH) <= 1:
        length = sizes.index(LENGTH)
        batch = sizes.index(BATCH) if BATCH in sizes else length - 1
        if 0 <= batch < length:
            yield PositionRow(value, batch, length)


def _index(elements: Elements, row: PositionRow) -> Index:
    own = {BATCH: ROW, LENGTH: QUERY}
    return tuple(own.get(size, ZERO) for size in elements.shape(row.value))


def _is_position(element: Expr, slot: Expr) -> bool:
    """Return whether an element is a token's position, if the mask does not hide it."""
    if element is slot:
        return True
    shown = [part for part in ex.walk(element) if _reads_mask(part, slot)]
    seen = ex.substitute(element, {part: TRUE if part.sort == "bool" else ONE for part in shown})
    sums = [part for part in ex.walk(seen) if part.op == "running_sum"]
    if len(sums) != 1:
        return False
    body, bound, last = sums[0].args
    is_counted = body.op == "choose" and body.args[1:] == (ONE, ZERO)
    before = ex.subtract(sums[0], ONE)
    counts_tokens = last is slot and _reads_mask(body.args[0] if is_counted else body, bound)
    # Choices between equal numbers depend on the order of operands.
    return counts_tokens and seen in {before, ex.maximum(before, ZERO), ex.maximum(ZERO, before)}


def _reads_mask(part: Expr, place: Expr) -> bool:
    return part.op == "read" and part.args[0] == MASK and part.args[-1] is place
