"""Distinguish faults from rounding that a model amplifies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from graphpass.dialects.onnx.precision import is_in_f16
from graphpass.dialects.rounding import MOVES_BY, Half
from graphpass.ir.graph import Graph, Value
from graphpass.ir.model import Model
from graphpass.ir.operators import CASTS
from graphpass.ir.values import REALS
from graphpass.verify.comparison import Comparison

#: Sums in another order move numbers of f32 by as much, layer after layer, as exponents of 2.
_REORDERED = (-20, -19, -18)

#: A candidate may differ by as many times that by which the reference differs from itself.
OF_ITS_OWN = 2.0

#: Distance of 1 from the next number of f16, as an exponent of 2.
_ULP = -10

#: Largest share by which f16 rounds numbers, as an exponent of 2.
ROUNDED_TO_F16 = -11

#: Nudges of half of what a type rounds, of that and of its double are tried.
_ROUNDINGS = 3

#: Signs of nudges are drawn so often: a tie between experts falls either way.
_DRAWS = 3

#: Axes of embeddings: batch, length, hidden size.
_RANK = 3


def after_nudges(
    comparison: Comparison,
    reference: Model,
    half: Half,
    against_itself: Callable[[Model], Comparison],
    pooled: Callable[[Model | None], tuple[Comparison, float]],
) -> Comparison:
    """Name rounding as the cause of a divergence if the reference diverges from itself likewise.

    If all logits together differ by no more than twice as much, too, rounding may be all there is:
    `Comparison.rounding` is set, and models of equal structures pass.

    Random signs decide which embeddings are raised and which are lowered, by half of what the type rounds and more. A
    model that chooses among experts by scores near a tie, or divides by a norm of numbers near zero, moves by as much
    as its rounded form does; a fault does not show so. No node that stays f32 helps then but all of them: `deepseek_v3`
    of the fixtures moves by 4.3 at the place where its f16 form does, and its router in f32 changes nothing.

    Args:
        comparison: The comparison of the reference and the same model, rounded.
        reference: The model that is right.
        half: The type to which the other's weights are rounded, or in which both compute.
        against_itself: Compares ``reference`` with a copy.
        pooled: See `after_reordered_sums`.
    """
    if comparison.divergence is None:
        return comparison
    nudge = MOVES_BY[half] - 1
    if reference.analysis(is_in_f16):
        # Smaller ones are lost in its numbers.
        nudge = max(nudge, _ULP)
    named = comparison
    # A rounded form rounds each result: all of that is more than one rounding of embeddings.
    for off_by in range(nudge, nudge + _ROUNDINGS):
        runs = map(against_itself, nudged_copies(reference, off_by))
        itself = next((run for run in runs if not run.passed), None)
        if itself is None:
            continue
        if named is comparison:
            words = (
                f"rounding alone does so: the reference differs from itself by {itself.max_abs_difference:.3g} if its "
                f"embeddings are off by 2^{off_by}, first at {itself.divergence}"
            )
            reason = f"{comparison.divergence.reason}; {words}"
            named = replace(comparison, divergence=replace(comparison.divergence, reason=reason))
        compared, shares = _pooled_shares(reference, off_by, pooled)
        if compared.passed and shares[0] <= OF_ITS_OWN * shares[1]:
            rounding = f"single logits: {_in_words(shares, off_by)}"
            return replace(compared, divergence=named.divergence, rounding=rounding)
    return named


def _pooled_shares(
    reference: Model, off_by: int, pooled: Callable[[Model | None], tuple[Comparison, float]]
) -> tuple[Comparison, tuple[float, float]]:
    """Compare all logits at once; return the shares by which they differ.

    Returns:
        The comparison; the share of the candidate, and that of the reference from itself.
    """
    own = max((pooled(copy)[1] for copy in nudged_copies(reference, off_by)), default=0.0)
    compared, share = pooled(None)
    return compared, (share, own)


def _in_words(shares: tuple[float, float], off_by: int) -> str:
    return (
        f"all logits together differ by {shares[0]:.2%} of their size, the reference from itself by {shares[1]:.2%} if "
        f"its embeddings are off by 2^{off_by}"
    )


def after_reordered_sums(
    comparison: Comparison,
    reference: Model,
    pooled: Callable[[Model | None], tuple[Comparison, float]],
    nudges: Sequence[int] = _REORDERED,
    least: float = 0.0,
) -> Comparison:
    """Let a divergence pass that is no larger than those of the reference from itself.

    A model that rounds activations to integers rounds a number the other way if sums in another order move it across a
    half, and all that follows from it moves by a step of 1/255. So each logit may, and all of them move by a share of
    their size. The reference moves so by itself if its embeddings are off a little: a candidate may by twice that. Few
    numbers lie so near a half, so several nudges are tried.

    Args:
        comparison: The comparison of both models.
        reference: The model that is right.
        pooled: Compares ``reference`` with a copy, or with the candidate for ``None``, all logits at once; returns the
            share that differs, too.
        nudges: By how much embeddings are off, as exponents of 2, from the least; by default, for sums of f32 in
            another order.
        least: The share that counts as right in any case.
    """
    if comparison.divergence is None:
        return comparison
    for off_by in nudges:
        compared, shares = _pooled_shares(reference, off_by, pooled)
        if compared.passed and shares[0] <= max(least, OF_ITS_OWN * shares[1]):
            words = f"single logits: activations are rounded to integers, and {_in_words(shares, off_by)}"
            return replace(compared, skipped=(*compared.skipped, words))
    return comparison


def nudged_copies(model: Model, nudge: int) -> Iterator[Model]:
    """Yield copies whose embeddings are off by ``2**nudge``, up or down at random."""
    copies = (_nudged(model, nudge, seed) for seed in range(_DRAWS))
    return (copy for copy in copies if copy is not None)


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
        is_half = rows.element_type == "f16"
        factors = 1 + random.choice([-1.0, 1.0], hidden) * 2.0**nudge
        write = rewriter.under(node.name)
        factor = write.constant(factors.astype(np.float16 if is_half else np.float32), "nudge", rows.element_type)
        rewriter.redirect_uses(rows, write.op("Multiply", rows, factor, label="nudged"))
        is_nudged = True
    rewriter.finish()
    return copy if is_nudged else None
