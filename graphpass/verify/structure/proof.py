"""Symbolic comparison of two models: results with equal expressions are equal for every input."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.step_lengths import known_lengths, step_lengths
from graphpass.analysis.caches.step_tokens import find_step_tokens
from graphpass.analysis.symbolic.step import PAST
from graphpass.dialects.onnx.branches import deciders, with_branch
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.verify.parts import Plan, plan
from graphpass.verify.structure.added_conditions import added_conditions
from graphpass.verify.structure.algebra import TooLargeError
from graphpass.verify.structure.comparer import Comparer
from graphpass.verify.structure.question import ComparedResult, Question
from graphpass.verify.structure.regions import Unequal, unequal_operators, upstream_operators
from graphpass.verify.structure.weights import WeightDigests
from graphpass.verify.structure_proof import Fed, Region, StructureProof

if TYPE_CHECKING:
    from graphpass.ir.graph import Value
    from graphpass.ir.model import Model


#: Least number of layers of which equal ones are compared once.
_MANY_LAYERS = 4

Feed: TypeAlias = "Callable[[Comparer, Sequence[ComparedResult], Unequal], Fed]"
"""Runs the operators that are not proven equal on random inputs."""


def compare_structures(
    reference: Model, candidate: Model, feed: Feed | None = None, compared: Collection[str] = ()
) -> StructureProof | None:
    """Count the operators of ``candidate`` that are proven equal for every input.

    If a boolean input selects the branches of the reference, the models are compared for each of its values. A
    candidate without this input is compared with the branch for ``True``.

    Args:
        reference: The source model.
        candidate: The model compared with it.
        feed: Runs the operators that are not proven equal on random inputs; ``None`` to skip this.
        compared: Names of outputs that the candidate may have in addition, because others compare them.

    Returns:
        The proof; ``None`` if the models have no output in common, or their sizes hold only for prompts.
    """
    decider = next(iter(deciders(reference)), None) if isinstance(reference, OnnxModel) else None
    if decider is None or not isinstance(reference, OnnxModel):
        return _compare(reference, candidate, feed, compared)
    if not isinstance(candidate, OnnxModel) or decider not in candidate.graph.parameters:
        proof = _compare(with_branch(reference, decider, True), candidate, feed, compared)
        return None if proof is None else replace(proof, assumed=(f"{decider} is true", *proof.assumed))
    proofs = [
        _compare(with_branch(reference, decider, value), with_branch(candidate, decider, value), feed, compared)
        for value in (True, False)
    ]
    known = [proof for proof in proofs if proof is not None]
    return reduce(StructureProof.joined, known) if len(known) == len(proofs) else None


def _compare(reference: Model, candidate: Model, feed: Feed | None, compared: Collection[str]) -> StructureProof | None:
    first, second = map(_outputs, (reference, candidate))
    if not first.keys() & second.keys():
        return None
    if _is_of_prompts(reference) or _is_of_prompts(candidate):
        return None
    known = {*reference.graph.writes, *compared}
    question = Question(tuple(first), further=tuple(name for name in second if name not in known))
    return compare_results(reference, candidate, question, feed)


def _outputs(model: Model) -> dict[str, str]:
    """Return the element types of outputs besides caches and returned inputs, by name."""
    inventory = analyze_caches(model)
    others = {cache.write for cache in inventory.caches} | find_step_tokens(model, inventory).returned
    return {port.name: port.element_type for port in model.outputs if port.name not in others}


def compare_results(reference: Model, candidate: Model, question: Question, feed: Feed | None = None) -> StructureProof:
    """Count the operators of ``candidate`` upstream of results that are proven equal for every input.

    Args:
        reference: The source model.
        candidate: The model compared with it.
        question: The results.
        feed: As `compare_structures`.

    Returns:
        The proof; without equal operators if an expression exceeds a limit.
    """
    try:
        return _compared(reference, candidate, question, feed)
    except TooLargeError:
        return _undecided(candidate, question, "the expression exceeds the limit of work")
    except OverflowError:
        return _undecided(candidate, question, "a constant expression exceeds the range of f64")


def _undecided(candidate: Model, question: Question, reason: str) -> StructureProof:
    output = next(iter((*question.outputs, *(result.name for result in question.results))))
    values = [node.source() for node in candidate.graph.of_op("Result", "Assign")]
    return StructureProof(len(upstream_operators(candidate.graph, values)), 0, 0, (Region(output, "Result", reason),))


def _compared(reference: Model, candidate: Model, question: Question, feed: Feed | None) -> StructureProof:
    models = reference, candidate
    weights, layers = WeightDigests(models), None if question.given else _layers(models)
    comparer = Comparer(models, weights, question, layers, unpadded=False)
    conditions = comparer.assumed, comparer.chunks
    # An output of another rank is one difference without an operator, too.
    total = comparer.operators(comparer.results) or 1
    # Only counted: most targets that define padding otherwise do so from the first layer on.
    unequal, further = comparer.unequal_or_downstream(), len(question.further)
    if not unequal and not further:
        return StructureProof(total, total, total, (), comparer.rows, *conditions)
    # A cache or an output that only one model has is one difference without an operator.
    equal = total - min(max(comparer.operators(unequal), len(unequal) + further), total)
    added = added_conditions(comparer.sides, upstream_operators(candidate.graph, _sources(candidate, unequal)))
    comparer = Comparer(models, weights, question, layers, unpadded=True)
    unequal = comparer.unequal()
    if not unequal and not further:
        return StructureProof(total, equal, total, (), comparer.rows, *conditions, added)
    values = [result.candidate for result in unequal if result.candidate is not None]
    left = unequal_operators(comparer.sides, values)
    unpadded = total - min(max(len(left.operators), len(unequal) + further), total)
    regions = (*left.regions, *_of_one_model(models, question, unequal))
    fed = None if feed is None or not unequal else feed(comparer, unequal, left)
    return StructureProof(total, equal, unpadded, regions, comparer.rows, *conditions, added, fed)


def _of_one_model(
    models: tuple[Model, Model], question: Question, unequal: Iterable[ComparedResult]
) -> Iterator[Region]:
    """Yield caches and outputs without a counterpart in the other model."""
    types, others = map(_outputs, models)
    for result in unequal:
        if result.candidate is None and result.name not in types:
            yield Region(result.name, "cache", "the candidate has no such cache")
        elif result.candidate is None and types[result.name] == others.get(result.name):
            yield Region(result.name, "output", "the models differ in its number of axes")
        elif result.candidate is None:
            reason = f"expected {types[result.name]}, got {others.get(result.name, 'no such output')}"
            yield Region(result.name, "output", reason)
    for name in question.further:
        yield Region(name, "output", "the reference has no such output")


def _layers(models: tuple[Model, Model]) -> Plan | None:
    """Return the layers of both models; ``None`` if these are few, or cannot be separated."""
    if len({cache.layer for cache in analyze_caches(models[0]).caches}) < _MANY_LAYERS:
        return None
    planned = plan(*models)
    return None if isinstance(planned, str) else planned


def _sources(candidate: Model, unequal: list[ComparedResult]) -> list[Value]:
    """Return the candidate's values of results; if any is missing, all outputs and caches."""
    values = [result.candidate for result in unequal if result.candidate is not None]
    if len(values) == len(unequal):
        return values
    return [node.source() for node in candidate.graph.of_op("Result", "Assign")]


def _is_of_prompts(model: Model) -> bool:
    """Return whether a model has a past, but sizes that hold only for prompts."""
    caches = analyze_caches(model).caches
    lengths, _ = known_lengths(model, caches)
    pasts = [dimension for dimension, name in step_lengths(model, caches).items() if name == "past"]
    return any(lengths[dimension] is not PAST for dimension in pasts)
