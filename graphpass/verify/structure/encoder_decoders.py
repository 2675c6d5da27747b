"""Symbolic comparison of encoder-decoder models, part by part.

An export has two decoders: that of the first step also computes the caches of cross attention. A result has one, and
computes these caches in the encoder, or in the initial values of variables. The models are equal if

- the encoder's states are;
- the caches of cross attention are, given equal encoder states;
- the results of the first step are, given these caches and an empty past;
- the results of further steps are, given these caches and equal pasts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import reduce

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.symbolic.expressions import ZERO, Expr, substitute
from graphpass.analysis.symbolic.sizes import infer_exact_sizes
from graphpass.analysis.symbolic.step import ENCODED, PAST
from graphpass.dialects.onnx.branches import with_branch
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.ir.cache import Cache
from graphpass.ir.graph import Value
from graphpass.ir.inputs import BRANCH, ENCODER_STATES, is_merged
from graphpass.ir.model import Model
from graphpass.runtime.backends.encoder_decoder import EncoderDecoderModels
from graphpass.verify.structure.caches import SELECTORS, Carried, first_value, paired, written
from graphpass.verify.structure.lengths import input_lengths
from graphpass.verify.structure.proof import compare_results, compare_structures
from graphpass.verify.structure.question import ComparedResult, Given, Question
from graphpass.verify.structure_proof import Region, StructureProof

_LOGITS = "logits"

#: The caller of the reference selects rows of these caches, but the candidate only those of other caches.
_EQUAL_ROWS = "caches of cross attention are equal in all rows that continue one sequence"

#: Rank of encoder states ``[batch, positions, hidden]``.
_STATES_RANK = 3


def compare_parts(reference: EncoderDecoderModels, candidate: EncoderDecoderModels) -> StructureProof | None:
    """Count the operators of the candidate's parts that are proven equal for every input.

    Args:
        reference: The source model.
        candidate: The model compared with it.

    Returns:
        The joined proofs of the parts; ``None`` if the parts of one model do not correspond to those of the other.
    """
    reference, candidate = _separated(reference), _separated(candidate)
    filled = {cache.filled_by for cache in analyze_caches(candidate.decoder).caches if cache.filled_by is not None}
    proofs = [compare_structures(reference.encoder, candidate.encoder, compared=filled)]
    if reference.first is not None and candidate.first is None:
        proofs += _of_one_decoder(reference.first, reference.decoder, candidate)
    elif reference.first is not None and candidate.first is not None:
        proofs.append(compare_structures(reference.first, candidate.first))
        proofs.append(compare_structures(reference.decoder, candidate.decoder))
    elif candidate.first is None:
        proofs.append(compare_structures(reference.decoder, candidate.decoder))
    else:
        return None
    known = [proof for proof in proofs if proof is not None]
    return reduce(StructureProof.joined, known) if len(known) == len(proofs) else None


def _separated(models: EncoderDecoderModels) -> EncoderDecoderModels:
    """Return the models with the two branches of a merged decoder as separate decoders."""
    merged = models.decoder
    if not isinstance(merged, OnnxModel) or not is_merged(merged.graph):
        return models
    return EncoderDecoderModels(
        models.encoder, with_branch(merged, BRANCH, value=True), with_branch(merged, BRANCH, value=False)
    )


def _of_one_decoder(first: Model, later: Model, candidate: EncoderDecoderModels) -> Iterator[StructureProof]:
    """Yield the proofs of a decoder that replaces two.

    Args:
        first: The decoder of the first step.
        later: The decoder of later steps.
        candidate: The model with one decoder.
    """
    decoder = candidate.decoder
    pairs = [(pair, _output(first, pair.reference.filled_by)) for pair in paired(later, decoder)]
    for pair, value in pairs:
        if value is None:
            region = Region(pair.name, "cache", "the decoder of the first step does not return it")
            yield StructureProof(1, 0, 0, (region,))
    filled = [(pair, value) for pair, value in pairs if value is not None]
    cross = [(pair, value) for pair, value in filled if pair.reference.kind == "cross"]
    yield from _cross_caches(first, candidate, cross)
    logits, new = _output(first, _LOGITS), _output(decoder, _LOGITS)
    assert logits is not None
    axes = tuple(range(logits.rank or 0))
    start = [ComparedResult(_LOGITS, logits, new, (axes, axes))]
    start += [
        ComparedResult(pair.name, value, written(decoder, pair.candidate), pair.orders())
        for pair, value in filled
        if pair.reference.kind != "cross"
    ]
    given = tuple(Given(value, _read(decoder, pair.candidate), pair.orders()) for pair, value in cross)
    yield compare_results(first, decoder, Question((), tuple(start), given, ({}, {PAST: ZERO})))
    given = tuple(
        Given(_read(later, pair.reference), _read(decoder, pair.candidate), pair.orders()) for pair, _ in cross
    )
    selects = not SELECTORS.isdisjoint(decoder.graph.parameters)
    assumed = (_EQUAL_ROWS,) if cross and selects else ()
    proof = compare_results(later, decoder, Question((_LOGITS,), given=given))
    yield replace(proof, assumed=(*assumed, *proof.assumed))


def _cross_caches(
    first: Model, candidate: EncoderDecoderModels, cross: Iterable[tuple[Carried, Value]]
) -> Iterator[StructureProof]:
    """Yield the proofs of caches of cross attention, which the candidate's encoder or decoder computes."""
    in_encoder: list[ComparedResult] = []
    in_decoder: list[ComparedResult] = []
    for pair, value in cross:
        own = _output(candidate.encoder, pair.candidate.filled_by)
        if own is None:
            begin = first_value(candidate.decoder, pair.candidate)
            in_decoder.append(ComparedResult(pair.name, value, begin, pair.orders()))
        else:
            in_encoder.append(ComparedResult(pair.name, value, own, pair.orders()))
    if in_decoder:
        yield compare_results(first, candidate.decoder, Question(results=tuple(in_decoder)))
    if in_encoder:
        states = first.graph.parameters.get(ENCODER_STATES)
        end = _output(candidate.encoder, candidate.encoder.outputs[0].name)
        axes = tuple(range(_STATES_RANK))
        positions = _positions(candidate.encoder, end)
        given = () if states is None or end is None else (Given(states, end, (axes, axes)),)
        question = Question((), tuple(in_encoder), given, ({ENCODED: positions}, {}))
        yield compare_results(first, candidate.encoder, question)


def _positions(encoder: Model, states: Value | None) -> Expr:
    """Return the number of positions of an encoder's states, in lengths of its inputs."""
    if states is None:
        return ENCODED
    lengths, _ = input_lengths(encoder, analyze_caches(encoder).caches)
    shape = encoder.analysis(infer_exact_sizes).shape(states)
    return ENCODED if shape is None or len(shape) < _STATES_RANK else substitute(shape[1], lengths)


def _read(model: Model, cache: Cache) -> Value:
    """Return the value of a cache before the step."""
    return model.graph.reads[cache.read].outputs[0]


def _output(model: Model, name: str) -> Value | None:
    node = model.graph.writes.get(name)
    return None if node is None else node.source()
