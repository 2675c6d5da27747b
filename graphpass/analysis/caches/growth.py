"""Find how a carried tensor grows from step to step, axis by axis."""

from __future__ import annotations

from typing import Literal

from graphpass.analysis.symbolic.bounds import is_natural
from graphpass.analysis.symbolic.equal_sizes import as_dimension
from graphpass.analysis.symbolic.expressions import Expr, subtract
from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.ir.graph import Value
from graphpass.ir.model import Model

Growth = Literal["fixed", "kept", "grows", "unknown"]


def growth_of(model: Model, past: Value, present: Value | None) -> tuple[Growth, ...]:
    """Return the change of each size of a carried tensor in a step.

    Args:
        model: The model.
        past: The tensor before the step.
        present: The tensor after the step; ``None`` if it is not written back.

    Returns:
        One of four values for each axis. Empty if the rank is unknown, or without ``present``.

        - ``fixed``: a constant size.
        - ``kept``: the size before the step, which is not a constant.
        - ``grows``: the size before the step plus a number >= 0.
        - ``unknown``: another size, for example the number of new tokens, which does not depend on the past.
    """
    if present is None or past.rank is None:
        return ()
    sizes = model.analysis(infer_sizes)
    old, new = sizes.shape(past), sizes.shape(present)
    if old is None or new is None or len(old) != len(new):
        return tuple("unknown" for _ in past.shape or ())
    _, steps = model.analysis(_token_sizes)
    return tuple(_growth(before, after, steps) for before, after in zip(old, new, strict=True))


def _growth(before: Expr, after: Expr, steps: set[Expr]) -> Growth:
    if after.op != "number" and after in steps:
        return "unknown"
    if before is after:
        return "fixed" if before.op == "number" else "kept"
    added = subtract(after, before)
    is_sum = as_dimension(before) is not None or (before.op == added.op == "number")
    if is_sum and is_natural(added):
        return "grows"
    # The present is the past of the next step, so both have the fixed size.
    return "fixed" if "number" in {before.op, after.op} else "unknown"


def state_batch_axis(model: Model, past: Value, present: Value) -> int:
    """Return the axis with the batch size of token inputs; 0 unless unique.

    Args:
        model: The model.
        past: The state before the step.
        present: The state after the step, whose shape may have the batch size if that of ``past`` does not.
    """
    sizes = model.analysis(infer_sizes)
    batches, _ = model.analysis(_token_sizes)
    shapes = [shape for value in (past, present) if (shape := sizes.shape(value)) is not None]
    axes = {axis for shape in shapes for axis, size in enumerate(shape) if size in batches and size.op != "number"}
    return axes.pop() if len(axes) == 1 else 0


def _token_sizes(model: Model) -> tuple[set[Expr], set[Expr]]:
    """Return the batch sizes and the lengths of integer inputs ``[batch, length]``."""
    sizes = model.analysis(infer_sizes)
    values = [node.outputs[0] for node in model.graph.of_op("Parameter")]
    ids = [value for value in values if value.rank == 2 and value.element_type in {"i64", "i32"}]
    shapes = [shape for value in ids if (shape := sizes.shape(value)) is not None]
    return {shape[0] for shape in shapes}, {shape[1] for shape in shapes}
