"""Tell faults from rounding that a model amplifies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from graphpass.dialects.rounding import Half
from graphpass.ir.graph import Graph, Value
from graphpass.ir.model import Model
from graphpass.ir.operators import CASTS
from graphpass.ir.values import REALS
from graphpass.verify.comparison import Comparison

#: Half of the most that rounding moves a number, as an exponent of 2; of f32, what sums in another order move it by.
_NUDGES: dict[Half | None, int] = {"bf16": -9, "f16": -12, None: -20}

#: Signs of nudges are drawn so often: a tie between experts falls either way.
_DRAWS = 3

#: Axes of embeddings: batch, length, hidden size.
_RANK = 3


def after_nudges(
    found: Comparison, reference: Model, half: Half | None, against_itself: Callable[[Model], Comparison]
) -> Comparison:
    """Name rounding as the cause of a divergence if the reference diverges from itself likewise.

    Random signs tell which embeddings are raised and which are lowered, by half of what the type rounds. A model that
    chooses among experts by scores near a tie, or divides by a norm of numbers near zero, moves by as much as its
    rounded form does; a fault does not show so. No node that stays f32 helps then but all of them: `deepseek_v3` of the
    fixtures moves by 4.3 at the place where its f16 form does, and its router in f32 changes nothing.

    Args:
        found: The comparison of the reference and the same model, rounded.
        reference: The model that is right.
        half: The type to which the other's weights are rounded; ``None`` if activations of both are rounded to
            integers.
        against_itself: Compares ``reference`` with a copy.
    """
    if found.divergence is None:
        return found
    nudge = _NUDGES[half]
    for seed in range(_DRAWS):
        nudged = _nudged(reference, nudge, seed)
        itself = None if nudged is None else against_itself(nudged)
        if itself is not None and itself.divergence is not None:
            words = (
                f"rounding alone does so: the reference differs from itself by {itself.max_abs_difference:.3g} if its "
                f"embeddings are off by 2^{nudge}, first at {itself.divergence}"
            )
            return replace(found, divergence=replace(found.divergence, reason=f"{found.divergence.reason}; {words}"))
    return found


def _dequantized(graph: Graph, rows: Value) -> Value:
    """Return what DequantizeLinear makes of rows of a table; themselves without one."""
    users = [use.node for use in graph.uses(rows) if use.node.op == "DequantizeLinear"]
    return users[0].outputs[0] if users else rows


def _nudged(model: Model, nudge: int, seed: int) -> Model | None:
    """Return a copy whose embeddings are off; ``None`` if it reads no table of them."""
    copy = model.clone()
    graph, rewriter = copy.graph, copy.rewriter()
    random, is_nudged = np.random.default_rng(seed), False
    for node in graph.of_op("Gather", "GatherBlockQuantized"):
        rows = _dequantized(graph, node.outputs[0])
        table = graph.producer(graph.look_through(node.source(), CASTS | {"DequantizeLinear"}))
        hidden = (rows.shape or (None,))[-1]
        if (
            table.op != "Constant"
            or rows.rank != _RANK
            or rows.element_type not in REALS
            or not isinstance(hidden, int)
        ):
            continue
        factors = 1 + random.choice([-1.0, 1.0], hidden) * 2.0**nudge
        write = rewriter.under(node.name)
        factor = write.constant(factors.astype(np.float32), "nudge", rows.element_type)
        rewriter.redirect_uses(rows, write.op("Multiply", rows, factor, label="nudged"))
        is_nudged = True
    rewriter.finish()
    return copy if is_nudged else None
