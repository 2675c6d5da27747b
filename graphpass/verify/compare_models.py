"""Compare two models in lockstep, within the rounding of their types."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.lengths.thresholds import find_thresholds
from graphpass.dialects.onnx.precision import in_f32, is_in_f16, without_bf16
from graphpass.errors import UsageError
from graphpass.ir.quantizers import rounds_activations
from graphpass.ir.values import weight_bytes
from graphpass.runtime.devices.webgpu import LONGEST_IN_SOFTWARE, NAME, is_software
from graphpass.runtime.embedding_model import let_take_ids
from graphpass.verify.comparison import Comparison
from graphpass.verify.conditioning import after_nudges, after_reordered_sums
from graphpass.verify.cut_outs import compare_cut_outs
from graphpass.verify.default_rounding import with_default_rounding
from graphpass.verify.difference import OutputComparer, PooledComparer, Tolerance
from graphpass.verify.lockstep import Lockstep
from graphpass.verify.pairing import with_names
from graphpass.verify.prompts import padded, padded_inside
from graphpass.verify.readings import (
    absorbs_left_padding,
    misreads_left_padding,
    rounds_rows_together,
    takes_positions,
    takes_several_of_each,
)
from graphpass.verify.request import ProofRequest
from graphpass.verify.rounded_caches import (
    ROUNDED,
    dequantized,
    rounds_alike,
    too_much,
    with_rounding,
    without_rounding,
)
from graphpass.verify.rounded_weights import rounded_to_f16, rounded_to_four_bits
from graphpass.verify.token_ids import compared_token_ids
from graphpass.verify.trajectories import Limit, Sides
from graphpass.verify.weights import damaged_weight

if TYPE_CHECKING:
    from collections.abc import Iterable

    from graphpass.ir.model import Model
    from graphpass.runtime.sessions.session import DecodeSession


#: Product of weight bytes and tokens that takes about ten seconds, and length whose masks and logits are below 1 GB.
_WORK, _MOST_TOKENS = 10**11, 1500

#: Line on references in 16 bits that run in f32.
WIDENED = "rounding of the reference to 16 bits: it runs in f32, with unchanged weights"


def compare(reference: Model, candidate: Model, **settings: Any) -> Comparison:
    """Run two models on the same tokens and compare all outputs that are not caches.

    Each sequence is a reset, a prefill and steps with the reference's greedy choice. The sequences are:

    - a prompt, and a longer one, which detects state left from the first, with ``steps`` steps each;
    - three prompts of different lengths as a batch padded on the left, with ``steps`` steps;
    - a batch whose rows a beam search selects;
    - the batch of three padded on the right, with few steps;
    - with ``edits``: sequences whose caches are edited between steps (trim, rewind, reorder, snapshot, restore,
      select), with several new tokens in some steps. Models with an input ``tree_mask`` get trees of drafts; without
      it, each branch is run separately;
    - prompts around each length at which either graph changes its computation;
    - a prompt of the token ids that either graph compares tokens with.

    Results at padding are not compared. The following rules apply to padded batches; the result lists what was not
    compared:

    - If the reference has NaN at tokens of the batch, rows have equal lengths instead.
    - A reference that treats left padding as tokens (GroupQueryAttention, linear caches, or positions that it counts
      itself and the candidate reads from ``position_ids``) runs each row alone, unless the candidate does so, too. If
      both do and attention of padding enters linear caches, padding follows the first token of each row, so that its
      queries attend to a key.
    - With ``padding`` on the right the reference runs each row alone, since padding occupies cache slots in some
      models only. Rows have equal lengths if a model has linear caches, which padding enters, or rounds activations
      of all rows by one scale.
    - On a right-padded batch the candidate may agree with the reference's batch, or with its rows alone. If it agrees
      with neither, the models diverge; unless ``padding`` is on the left and the reference's batch and rows differ:
      the right-padded batch is then skipped.
    - With ``padding`` on the right, left padding is not compared.

    Other rules:

    - An ONNX reference in f16 or bf16 runs in f32, with unchanged weights. A candidate in f16 may agree with either
      the reference in f16 or the reference in f32.
    - Caches in integers are compared twice: dequantized, and unchanged; see `graphpass.verify.rounded_caches`.
    - If the reference fails with two rows, for example an export traced with one, all sequences have one row.
    - Values agree if ``|reference - candidate| <= atol + rtol * |reference|``; NaN agrees with NaN only.
    - A candidate that lacks an output, returns another shape, or fails to run diverges.

    Args:
        reference: The reference model.
        candidate: The candidate model.
        settings: Attributes of `ProofRequest`.

    Returns:
        The comparison, up to the first divergence.

    Raises:
        UnsupportedError: GP320 to GP324, a model cannot be run, see `open_session` and `DecodeSession`; GP325, the size
            of its embeddings is not known; GP330, the models have no output in common; GP331, they have different fixed
            batch sizes; GP370, the reference has caches that cannot be edited.
        UsageError: GP250, ``prompt_ids``, ``steps`` or a tolerance is out of range; GP267, the sequences exceed caches
            of fixed capacity.
    """
    return compare_by(ProofRequest(**settings), reference, candidate)


def compare_by(request: ProofRequest, reference: Model, candidate: Model) -> Comparison:
    """Run two models as `compare`, with the settings as one object.

    Args:
        request: The settings.
        reference: The reference model.
        candidate: The candidate model.

    Returns:
        As `compare`.

    Raises:
        UnsupportedError, UsageError: As `compare`.
    """
    run, opened = partial(_compare, request), request.opened
    wide = reference.analysis(dequantized), candidate.analysis(dequantized)
    in_four_bits = rounded_to_four_bits(*wide)
    wide = wide if in_four_bits is None else (in_four_bits[0], wide[1])
    proven = run(*wide)
    if not proven.passed and all(model.analysis(is_in_f16) for model in wide):
        # Only one of the models may round angles to f16.
        exact = run(*wide, exactly=True)
        proven = exact if exact.passed else proven
    stores_f16 = not proven.passed and Tolerance.for_models(*wide, device=request.device).rounded_to is None
    if stores_f16 and (rounded_reference := rounded_to_f16(*wide)) is not None:
        alike = run(rounded_reference[0], wide[1])
        words = (
            f"rounding of {rounded_reference[1]} weights to f16: the reference runs with the same rounding; "
            f"without it, logits differ by {proven.max_abs_difference:.2g} or more"
        )
        proven = replace(alike, skipped=(*alike.skipped, words)) if alike.passed else proven
    if in_four_bits is not None:
        words = f"rounding of {in_four_bits[1]} weights to 4 bits: the reference runs with the same rounding"
        proven = replace(proven, skipped=(*proven.skipped, words))
    if request.is_strict and proven.passed and (damaged := damaged_weight(*wide)) is not None:
        proven = proven.diverging(*damaged)
    proven = with_names(proven, *wide)
    if request.examine and proven.passed:
        proven = with_default_rounding(proven, candidate, request)
    if wide[1] is candidate:
        return without_rounding(proven, reference)
    comparison = with_rounding(proven, reference, candidate, opened)
    if not comparison.passed:
        return comparison
    pooled = PooledComparer(Tolerance.for_models(candidate))
    base = reference if rounds_alike(reference, candidate) else wide[1]
    rounded = _compare(replace(request, examine=False), base, candidate, pooled=pooled)
    if rounded.passed and (reason := too_much(candidate, pooled.shares)) is not None:
        rounded = rounded.diverging(ROUNDED, reason)
    return comparison.followed_by(rounded)


def _compare(
    request: ProofRequest,
    reference: Model,
    candidate: Model,
    *,
    pooled: PooledComparer | None = None,
    exactly: bool = False,
) -> Comparison:
    steps, padding, opened = request.steps, request.padding, request.opened
    usual = Tolerance.for_models(reference, candidate, device=request.device)
    tolerance = request.tolerance(usual)
    widen = without_bf16 if candidate.analysis(is_in_f16) and not exactly else in_f32
    models = reference, candidate
    reference, candidate = reference.analysis(widen), candidate.analysis(without_bf16)
    sessions = opened(reference), opened(candidate, device=request.device, properties=request.properties)
    let_take_ids(reference, *sessions)
    both = reference, candidate
    misreading = [misreads_left_padding(model) for model in both]
    drafts = takes_several_of_each(candidate.graph)
    if drafts and all(misreading):
        # Results of this attention are unspecified after the number of new tokens that the mask counts.
        padding = "right"
    counting = takes_positions(candidate) and not takes_positions(reference)
    kinds = [model.analysis(analyze_caches).kind for model in both]
    enters = not {"hybrid", "linear"}.isdisjoint(kinds)
    alone = (padding == "right" and not enters) or ((misreading[0] or counting) and not misreading[1])
    inside = padding == "left" and all(misreading) and any(absorbs_left_padding(model) for model in both)
    pads = {"left": padded_inside if inside else padded} | ({} if enters else {"right": partial(padded, side="right")})
    entered = "linear caches"
    if any(map(rounds_rows_together, both)):
        pads, entered = {}, "the scales by which activations of all rows are rounded"
    sides = Sides(pads, entered, padding, alone=alone, counted=counting)
    outputs = pooled or OutputComparer(tolerance)
    token_ids = tuple(sorted({token for model in both for token in model.analysis(compared_token_ids)}))

    def paired(left: DecodeSession, right: DecodeSession, compared: OutputComparer) -> Lockstep:
        treated = () if request.is_proven else token_ids
        return Lockstep(left, right, compared, sides, drafts=drafts, token_ids=treated)

    lockstep = paired(*sessions, outputs)

    def followed(lockstep: Lockstep) -> Comparison:
        return lockstep.run(steps, request.prompt_ids, kinds if request.edits else [], around, _limit(request, both))

    def against_itself(copy: Model) -> Comparison:
        return followed(paired(sessions[0], opened(copy), OutputComparer(tolerance)))

    def pooled_with(copy: Model | None) -> tuple[Comparison, float]:
        compared, other = PooledComparer(tolerance), sessions[1] if copy is None else opened(copy)
        comparison = followed(paired(sessions[0], other, compared))
        return comparison, max(compared.shares.values(), default=0.0)

    try:
        thresholds = [threshold for model in both for threshold in model.analysis(find_thresholds)] if steps else []
        around = [] if request.is_proven else thresholds
        comparison = followed(lockstep)
        half = usual.rounded_to or ("f16" if candidate.analysis(is_in_f16) else None)
        if half is not None:
            comparison = after_nudges(comparison, reference, half, against_itself, pooled_with)
        if rounds_activations(reference):
            comparison = after_reordered_sums(comparison, reference, pooled_with)
        if steps and comparison.passed and pooled is None:
            # The comparison needs no runtime, so the models keep their types; the reference may also be in f32.
            samples = not request.is_proven_with_padding
            result = compare_cut_outs(*models, thresholds, tolerance, comparison, samples=samples)
            if not result.passed and reference is not models[0]:
                result = compare_cut_outs(reference, models[1], thresholds, tolerance, comparison, samples=samples)
            comparison = result
        if reference is not models[0]:
            comparison = replace(comparison, skipped=(*comparison.skipped, WIDENED))
        if misreading[1] and not misreading[0] and padding == "left":
            comparison = _advised(comparison)
        return lockstep.examined(comparison, reference) if request.examine else comparison
    except UsageError as error:
        if error.id != "GP267":
            raise
        raise UsageError(
            "GP267",
            f"{error.message}, which a comparison over {steps} steps requires",
            "compare fewer steps or a shorter prompt (graphpass verify --steps, --prompt-ids), or make the model again "
            "with a larger capacity",
        ) from error


def _advised(comparison: Comparison) -> Comparison:
    """Return a comparison with advice on padding that only the candidate misreads."""
    divergence = comparison.divergence
    if divergence is None or divergence.place is not None:
        return comparison
    if "padded on the left" not in comparison.sequences[divergence.sequence].description:
        return comparison
    advice = "the candidate reads each row from the front; to compare padding on the right, use --padding right"
    return replace(comparison, divergence=replace(divergence, reason=f"{divergence.reason}; {advice}"))


def _limit(request: ProofRequest, models: Iterable[Model]) -> Limit:
    """Return the limit on sequences around thresholds, by weight size and device."""
    largest = max(weight_bytes(model.graph) for model in models)
    tokens = min(_MOST_TOKENS, int(_WORK / max(largest, 1)))
    if request.device == NAME and is_software() and tokens > LONGEST_IN_SOFTWARE:
        return Limit(LONGEST_IN_SOFTWARE, f"SwiftShader computes over {LONGEST_IN_SOFTWARE} tokens incorrectly")
    return Limit(tokens, "too much work for whole models")
