"""Compare two models whole if they fit a budget, else layer by layer."""

from __future__ import annotations

import contextlib
import difflib
import gc
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from itertools import islice
from operator import add
from typing import TYPE_CHECKING, Any

from graphpass.analysis.caches.quantized import find_cache_scales
from graphpass.errors import UnsupportedError, UsageError
from graphpass.ir.bodies import inlined
from graphpass.ir.values import fixed_size
from graphpass.progress import advance, expect, stage
from graphpass.runtime import open_session
from graphpass.runtime.backends.stateless import StatelessStore
from graphpass.storage.weight_file import release
from graphpass.verify.compare_models import compare_by
from graphpass.verify.comparison import FEED_FORWARD, Comparison, PartProof
from graphpass.verify.feeding import feed
from graphpass.verify.layers.budget import Budget
from graphpass.verify.layers.channels import find_channels, with_channels
from graphpass.verify.layers.extract import extract
from graphpass.verify.layers.head import find_head, with_words
from graphpass.verify.layers.structure import structure_of, weights_alike
from graphpass.verify.pairing import shared_present, with_names
from graphpass.verify.parts import plan
from graphpass.verify.request import ProofRequest
from graphpass.verify.rounded_caches import dequantized, with_rounding, without_rounding
from graphpass.verify.structure.proof import compare_structures

#: Maximum greedy steps of each part if the structures are equal for every input.
_STEPS_IF_PROVEN = 4

_ROUNDING = "rounding of caches: whole models exceed the budget; layers ran with dequantized caches"

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterator, Sequence

    from graphpass.ir.model import Model
    from graphpass.runtime.sessions.session import DecodeSession
    from graphpass.verify.layers.channels import Channels
    from graphpass.verify.layers.head import Head
    from graphpass.verify.parts import Part, Plan


def compare_within(
    reference: Model,
    candidate: Model,
    budget: str | None = None,
    *,
    all_layers: bool = False,
    allow: Collection[str] = (),
    **settings: Any,
) -> Comparison:
    """Compare two models by structure and in lockstep, whole or layer by layer.

    Structures come first: see `ProofRequest.structure` for the runs that equal structures make unnecessary.

    Models that exceed the budget are cut between layers, at values with the same weights upstream in both models. Each
    part is extracted as a model, with its own weights and caches, and compared on random vectors. A part is not run
    if a part with the same structure in both models ran, and the candidate's weights in this part are those of the
    reference at the corresponding nodes.

    If the structures are equal for every input, a candidate in 16 bits may differ at single prompts by as much as
    rounding changes the reference, for example where the scores of experts are nearly equal.

    Models whose outputs agree on all prompts still differ if

    - the candidate compares the batch size, a row index or token ids, and the reference does not: its results may
      differ where the comparison holds;
    - unequal operators have different results on random numbers in place of equal values.

    Args:
        reference: The reference model.
        candidate: The candidate model.
        budget: Time and memory for whole models, as `Budget.parse` accepts; by default that of `Budget.of_machine`.
        all_layers: Whether to cut the models and run all parts, regardless of the budget.
        allow: Names of the candidate's nodes that are exempt from the two conditions above.
        settings: Arguments of `graphpass.verify.compare`.

    Returns:
        The comparison with `Comparison.structure`, and with `Comparison.parts` if the models were cut.

    Raises:
        GraphpassError: As `graphpass.verify.compare`; GP105, GP110 and GP111, weights cannot be read.
        UsageError: GP250, ``budget`` cannot be parsed; GP271, the candidate has no node of a name in ``allow``.
    """
    _check_names(candidate, allow)
    request = ProofRequest(**settings)
    with stage("comparing structures"):
        keeps = reference if candidate.analysis(find_cache_scales) else reference.analysis(dequantized)
        structure = compare_structures(keeps, candidate)
    if (shared := shared_present(reference, candidate)) is not None:
        unlike_caches = Comparison((), ("caches",), 0.0, None, (), structure=structure)
        return unlike_caches.diverging("caches", f"{shared[0]} and {shared[1]} are one value, and two in the reference")
    request = replace(request, structure=structure)
    comparison = _compared(request, reference, candidate, budget, all_layers=all_layers)
    if not comparison.passed and comparison.rounding is None:
        return replace(comparison, structure=structure)
    if structure is not None and structure.regions and not comparison.parts:
        with stage("comparing structures"):
            structure = compare_structures(keeps, candidate, feed)
    comparison = replace(comparison, structure=structure)
    if structure is not None and structure.is_complete:
        comparison = comparison.passed_as_rounding()
    if not comparison.passed:
        return comparison
    unlike = None if structure is None else structure.difference(allow)
    return comparison if unlike is None else comparison.diverging(f"{unlike.operator} {unlike.node}", unlike.reason)


def _check_names(model: Model, names: Collection[str]) -> None:
    """Check that ``model`` has nodes of these names.

    Raises:
        UsageError: GP271, the model lacks a node.
    """
    nodes = {node.name for node in inlined(model).graph.nodes} if names else set()
    for name in names:
        if name not in nodes:
            near = difflib.get_close_matches(name, nodes, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]}?" if near else "the report names the nodes that --allow accepts"
            raise UsageError("GP271", f"the candidate has no node called {name!r}", hint)


def _compared(
    request: ProofRequest, reference: Model, candidate: Model, budget: str | None, *, all_layers: bool
) -> Comparison:
    limits = Budget.of_machine() if budget is None else Budget.parse(budget)
    if not all_layers and limits.holds((reference, candidate)):
        return compare_by(request, reference, candidate)
    is_rounded = any(model.analysis(find_cache_scales) for model in (reference, candidate))
    with stage("pairing layers"):
        wide = reference.analysis(dequantized), candidate.analysis(dequantized)
        planned = plan(*wide)
    if not isinstance(planned, str):
        try:
            with _set_aside():
                comparison = with_names(_Proof(planned, request).run(all_layers=all_layers), *wide)
            # Scales of quantized caches do not fit the keys and values of random vectors.
            if is_rounded and not candidate.analysis(find_cache_scales):
                return without_rounding(comparison, reference)
            if is_rounded and limits.holds((candidate,)):
                return with_rounding(comparison, reference, candidate, _open_lean)
            return replace(comparison, skipped=(*comparison.skipped, _ROUNDING)) if is_rounded else comparison
        except UnsupportedError as error:
            planned = f"a part cannot run alone: {error.message}"
    whole = compare_by(request, reference, candidate)
    return replace(whole, skipped=(*whole.skipped, f"layer by layer: {planned}"))


@contextlib.contextmanager
def _set_aside() -> Iterator[None]:
    """Exclude existing objects from garbage collection, which runs after each part."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@dataclass
class _Proof:
    plan: Plan
    request: ProofRequest
    runs: dict[str, Comparison] = field(default_factory=dict)

    def run(self, *, all_layers: bool) -> Comparison:
        done: dict[Hashable, str] = {}
        proofs: list[PartProof] = []
        expect(len(self.plan.parts), "parts")
        for number, pair in enumerate(self.plan.parts):
            name = self._name(number)
            advance(int(number > 0), name)
            structures = structure_of(pair[0]), structure_of(pair[1])
            weights = weights_alike(structures, self.plan.contents)
            alike = structures[0].digest, structures[1].digest, weights
            like = None if all_layers else done.get(alike)
            proof = PartProof(name, _end(pair[0]), _end(pair[1]), len(structures[1].weights), like)
            if like is not None:
                proofs.append(proof)
                continue
            done.setdefault(alike, name)
            ran = len(self.runs)
            agrees = self._compare(name, pair)
            proofs.append(
                replace(proof, difference=max(run.max_abs_difference for run in islice(self.runs.values(), ran, None)))
            )
            if not agrees:
                break
        return self._summed(tuple(proofs))

    def _name(self, number: int) -> str:
        parts = self.plan.parts
        holding = [place for place, pair in enumerate(parts) if pair[0].caches]
        if not holding:
            return f"layer {number}"
        layer = bisect_right(holding, number) - 1
        if layer < 0:
            return "embedding"
        if number == holding[layer]:
            return f"layer {layer}"
        return "head" if parts[number][0].exit is None else f"{FEED_FORWARD} {layer}"

    def _compare(self, name: str, pair: tuple[Part, Part]) -> bool:
        """Run one part of both models.

        Returns:
            Whether they agree, rounding aside.
        """
        with stage(name):
            # Slices of a product differ in weights alone, and equal structures include these.
            pieces = islice(_pieces(name, pair), 1 if self.request.is_proven else None)
            return all(self._run(words, pair, models) for words, models in pieces)

    def _run(self, name: str, pair: tuple[Part, Part], models: tuple[Model, Model]) -> bool:
        opened = partial(_open_lean, replays=not self._carries)
        result = compare_by(replace(self._request(name, pair), opened=opened), *models)
        count = sum(len(run.sequences) for run in self.runs.values())
        sequences = tuple(replace(run, description=f"{name}: {run.description}") for run in result.sequences)
        divergence = result.divergence
        if divergence is not None:
            reason = f"{name}: {divergence.reason}"
            divergence = replace(divergence, sequence=divergence.sequence + count, reason=reason)
        self.runs[name] = replace(result, sequences=sequences, divergence=divergence)
        del models
        # Models and their analyses are reference cycles that keep weights in memory.
        gc.collect()
        return result.passed or result.rounding is not None

    def _request(self, name: str, pair: tuple[Part, Part]) -> ProofRequest:
        request = self.request
        if request.prompt_ids is not None and pair[0].exit is not None:
            # The width of a part's output is its vocabulary size.
            width = fixed_size(pair[0].exit, -1) or 1
            request = replace(request, prompt_ids=tuple(number % width for number in request.prompt_ids))
        if request.is_proven:
            request = replace(request, steps=min(request.steps, _STEPS_IF_PROVEN))
        if self._carries and not any(part.caches for part in pair):
            # Steps are independent without caches.
            examine = request.examine and name.startswith(FEED_FORWARD)
            request = replace(request, steps=min(request.steps, 1), edits=False, examine=examine)
        return request

    @cached_property
    def _carries(self) -> bool:
        """Return whether any part has caches; the others then depend on new tokens only."""
        return any(part.caches for pair in self.plan.parts for part in pair)

    def _summed(self, parts: tuple[PartProof, ...]) -> Comparison:
        runs = self.runs.values()
        others = _other_outputs(self.plan)
        reaches = [run.reach for run in runs if run.reach is not None]
        unlike = sorted((run for run in runs if not run.passed), key=lambda run: run.rounding is not None)
        return Comparison(
            sequences=tuple(sequence for run in runs for sequence in run.sequences),
            outputs=("logits", f"{len(parts) - 1} values between parts") if len(parts) > 1 else ("logits",),
            max_abs_difference=max(run.max_abs_difference for run in runs),
            divergence=unlike[0].divergence if unlike else None,
            rounding=unlike[0].rounding if unlike else None,
            skipped=self._by_part(lambda run: run.skipped) + others,
            warnings=self._by_part(lambda run: run.warnings),
            reach=reduce(add, reaches) if reaches else None,
            parts=parts,
        )

    def _by_part(self, lines: Callable[[Comparison], tuple[str, ...]]) -> tuple[str, ...]:
        """Return the distinct lines, after the names of their parts unless all parts have them."""
        parts: dict[str, list[str]] = {}
        for name, run in self.runs.items():
            for text in dict.fromkeys(lines(run)):
                parts.setdefault(text, []).append(name)
        return tuple(
            text if len(names) == len(self.runs) else f"{', '.join(names)}: {text}" for text, names in parts.items()
        )


def _open_lean(model: Model, *, replays: bool = True, **options: Any) -> DecodeSession:
    """Return a session that uses as little memory for weights as the runtime needs.

    Args:
        model: The model.
        replays: See `StatelessStore.replays`.
        options: Further arguments of `open_session`.
    """
    # Importing ONNX Runtime is slow, and comparisons of whole IR models do not need it.
    from graphpass.runtime.backends.onnxruntime_request import weights_in_place

    with weights_in_place():
        session = open_session(model, **options)
    if isinstance(session.store, StatelessStore):
        session.store.replays = replays
    release(model.weight_files)
    return session


def _pieces(name: str, pair: tuple[Part, Part]) -> Iterator[tuple[str, tuple[Model, Model]]]:
    """Yield names and models of both parts: one pair, or one for each slice."""
    models = extract(pair[0]), extract(pair[1])
    heads = [find_head(part.chain.graph, part.chain.logits) for part in pair if part.exit is None]
    slices, kind = _shared(heads), "words"
    with_some: Callable[[Model, tuple[int, int]], Model] = with_words
    if not heads and not any(part.caches for part in pair):  # parts with caches run more steps
        slices, kind = _shared([find_channels(model.graph) for model in models]), "channels"
        with_some = with_channels
    for ends in slices:
        yield f"{name}, {kind} {ends[0]} to {ends[1] - 1}", (with_some(models[0], ends), with_some(models[1], ends))
    if not slices:
        yield name, models


def _shared(parts: Sequence[Head | Channels | None]) -> tuple[tuple[int, int], ...]:
    """Return the slices of both parts if they are equal and several; else ``()``."""
    slices = {part.slices if part is not None else () for part in parts}
    return next(iter(slices)) if len(slices) == 1 and len(min(slices)) > 1 else ()


def _end(part: Part) -> str:
    return part.exit.name if part.exit is not None else part.chain.logits.name


def _other_outputs(planned: Plan) -> tuple[str, ...]:
    chain = planned.parts[0][0].chain
    presents = {cache.write for cache in chain.caches}
    names = [
        node.name for node in chain.graph.of_op("Result") if node.name not in presents and node is not chain.logits
    ]
    return tuple(f"output {name}: models are compared part by part" for name in names)
