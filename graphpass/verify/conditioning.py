"""Distinguish faults from rounding errors that a model amplifies."""

from __future__ import annotations

import functools
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

#: Relative changes of embeddings that have the effect of sums of f32 in another order, as exponents of 2.
REORDERED = (-20, -19, -18)

#: Maximum ratio of the candidate's difference to that of the reference with changed embeddings.
OF_ITS_OWN = 2.0

#: Distance from 1 to the next larger number of f16, as an exponent of 2.
_ULP = -10

#: Maximum relative rounding error of f16, as an exponent of 2.
ROUNDED_TO_F16 = -11

#: Number of nudges that are tried: half of a type's rounding error, the error, and twice the error.
_ROUNDINGS = 3

#: Number of random draws of the nudges' signs, since signs decide ties between experts.
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
    """Attribute a divergence to rounding if the reference with nudged embeddings diverges, too.

    The channels of the embeddings are multiplied by ``1 + e`` or ``1 - e`` with random signs, where ``e`` is half of
    the type's rounding error, the error, or twice the error. A model that selects experts by nearly equal scores, or
    divides by a norm near zero, amplifies such nudges as much as rounding; a fault of the candidate does not affect
    the reference. Keeping single nodes in f32 does not help: `deepseek_v3` of the fixtures diverges from itself by 4.3
    at the position where its f16 form diverges, also with its router in f32.

    `Comparison.rounding` is set if, in addition, the pooled difference of all logits is at most twice that of the
    nudged reference. Models of equal structure then pass.

    Args:
        comparison: The comparison of the reference with a model that is the same except for rounding.
        reference: The reference model.
        half: The type to which the candidate's weights are rounded, or in which both models compute.
        against_itself: Compares ``reference`` with a nudged copy.
        pooled: See `after_reordered_sums`.

    Returns:
        The comparison; its divergence also states how far the nudged reference diverges, if it does.
    """
    if comparison.divergence is None:
        return comparison
    nudge = MOVES_BY[half] - 1
    if reference.analysis(is_in_f16):
        # f16 rounds factors nearer to 1 to 1.
        nudge = max(nudge, _ULP)
    named = comparison
    of_candidate = functools.cache(lambda: pooled(None))
    # The candidate rounds the result of each node, so its error may exceed one rounding of the embeddings.
    for off_by in range(nudge, nudge + _ROUNDINGS):
        runs = map(against_itself, nudged_copies(reference, off_by))
        itself = next((run for run in runs if not run.passed), None)
        if itself is None:
            continue
        if named is comparison:
            words = (
                f"rounding alone causes this: the reference differs from itself by {itself.max_abs_difference:.3g} if "
                f"its embeddings are changed by 2^{off_by}, first at {itself.divergence}"
            )
            reason = f"{comparison.divergence.reason}; {words}"
            named = replace(comparison, divergence=replace(comparison.divergence, reason=reason))
        compared, share = of_candidate()
        shares = share, _own_share(reference, off_by, pooled)
        if compared.passed and shares[0] <= OF_ITS_OWN * shares[1]:
            rounding = f"single logits: {_in_words(shares, off_by)}"
            return replace(compared, divergence=named.divergence, rounding=rounding)
    return named


def _own_share(reference: Model, off_by: int, pooled: Callable[[Model | None], tuple[Comparison, float]]) -> float:
    """Return the largest relative difference of the reference from its nudged copies."""
    return max((pooled(copy)[1] for copy in nudged_copies(reference, off_by)), default=0.0)


def _in_words(shares: tuple[float, float], off_by: int) -> str:
    return (
        f"all logits together differ by {shares[0]:.2%} of their size, the reference from itself by {shares[1]:.2%} if "
        f"its embeddings are changed by 2^{off_by}"
    )


def after_reordered_sums(
    comparison: Comparison,
    reference: Model,
    pooled: Callable[[Model | None], tuple[Comparison, float]],
    nudges: Sequence[int] = REORDERED,
    least: float = 0.0,
) -> Comparison:
    """Accept a divergence of at most twice the reference's with nudged embeddings, over all logits.

    For models that round activations to integers: if a sum in another order moves an activation across a rounding
    boundary, the activation changes by a step of 1/255, and all values downstream change. Few activations are near a
    boundary, so several nudges are tried.

    Args:
        comparison: The comparison of both models.
        reference: The reference model.
        pooled: Compares the logits of all steps at once, of ``reference`` and a copy of it, or of ``reference`` and the
            candidate for ``None``. Returns the comparison and the relative difference.
        nudges: Relative changes of embeddings as exponents of 2, ascending; by default those that have the effect of
            sums of f32 in another order.
        least: Relative difference that is accepted without regard to the reference's.

    Returns:
        The comparison of all logits if it is accepted; otherwise ``comparison``.
    """
    if comparison.divergence is None:
        return comparison
    compared, share = pooled(None)
    if not compared.passed:
        return comparison
    for off_by in nudges:
        shares = share, _own_share(reference, off_by, pooled)
        if share <= max(least, OF_ITS_OWN * shares[1]):
            words = f"single logits: activations are rounded to integers, and {_in_words(shares, off_by)}"
            return replace(compared, skipped=(*compared.skipped, words))
    return comparison


def nudged_copies(model: Model, nudge: int) -> Iterator[Model]:
    """Return copies of a model with the channels of embeddings multiplied by ``1 + 2**nudge`` or ``1 - 2**nudge``.

    Args:
        model: The model; it has no copies unless embeddings are rows of a constant.
        nudge: Relative change, as an exponent of 2.
    """
    copies = (_nudged(model, nudge, seed) for seed in range(_DRAWS))
    return (copy for copy in copies if copy is not None)


def _dequantized(graph: Graph, rows: Value) -> Value:
    """Return the output of the DequantizeLinear that reads ``rows``; without one, ``rows``."""
    users = [use.node for use in graph.uses(rows) if use.node.op == "DequantizeLinear"]
    return users[0].outputs[0] if users else rows


def _nudged(model: Model, nudge: int, seed: int) -> Model | None:
    """Return a copy with scaled embeddings; ``None`` if they are not rows of a constant."""
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
