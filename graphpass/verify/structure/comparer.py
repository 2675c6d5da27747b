"""Comparison of the results of two models, as expressions of their inputs and caches."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.kept_logits import kept_logits
from graphpass.analysis.caches.step_lengths import MASK
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Index, UnknownError
from graphpass.analysis.symbolic.equal_sizes import as_dimension
from graphpass.analysis.symbolic.expressions import Expr
from graphpass.analysis.symbolic.places import index_along
from graphpass.analysis.symbolic.sizes import infer_exact_sizes
from graphpass.analysis.symbolic.step import LENGTH
from graphpass.ir.inputs import NEW_SLOTS, PAST_LENGTH, SOURCE_SLOTS
from graphpass.ir.operators import stores_window
from graphpass.ir.values import HALVES
from graphpass.verify.parts import Plan
from graphpass.verify.structure.algebra import Algebra
from graphpass.verify.structure.angles import AngleTables
from graphpass.verify.structure.caches import Carried, leaves_of, never_selected, paired, starts, written
from graphpass.verify.structure.chunks import Chunks
from graphpass.verify.structure.constants import Constants
from graphpass.verify.structure.definitions import Definitions
from graphpass.verify.structure.equal_layers import EqualLayers, LayerPair
from graphpass.verify.structure.latents import expanded_caches, latent_leaves, latents_of, leaf_of
from graphpass.verify.structure.leaves import CacheWindow, Leaf
from graphpass.verify.structure.lengths import read_inputs
from graphpass.verify.structure.masks import KnownMasks
from graphpass.verify.structure.model_tensors import ModelTensors
from graphpass.verify.structure.moves import begins_at_1, moves_slots
from graphpass.verify.structure.operators import table
from graphpass.verify.structure.question import ComparedResult, Given, Question
from graphpass.verify.structure.regions import upstream_operators
from graphpass.verify.structure.rounded import rounded_caches
from graphpass.verify.structure.rounded_constants import rounded_type, types_of_products
from graphpass.verify.structure.weights import WeightDigests

if TYPE_CHECKING:
    from graphpass.ir.graph import Value
    from graphpass.ir.model import Model


#: Limit of rewritten expressions: per node, and in addition. Known exports require 1 to 6 per node.
_WORK, _LEAST_WORK = 12, 8000


class Comparer:
    """Symbolic comparison of two models, either for any padding or for batches without padding."""

    def __init__(
        self,
        models: tuple[Model, Model],
        weights: WeightDigests,
        question: Question,
        layers: Plan | None = None,
        *,
        unpadded: bool,
    ) -> None:
        """Pair inputs, caches and outputs.

        Args:
            models: Reference and candidate.
            weights: Digests of their weights.
            question: The results to compare.
            layers: Their layers, of which equal ones are compared once; ``None`` to compare all.
            unpadded: Whether to assume rows without padding, with positions that continue the past.
        """
        self.models = reference, candidate = models
        self.expanded = (*expanded_caches(reference, candidate), *rounded_caches(reference, candidate))
        own = {pair.cache for pair in self.expanded}
        pairs = [pair for pair in paired(reference, candidate) if pair.candidate not in own]
        self.pairs = tuple(pairs)
        self.shared = list(never_selected(self.models, pairs))
        half = self.rounded_to = rounded_type(reference, candidate)
        halves = (HALVES & types_of_products(reference).keys()) | ({half} if half else frozenset())
        self.angles = AngleTables(halves)
        limit = _LEAST_WORK + _WORK * sum(len(model.graph.nodes) for model in self.models)
        neutral = [f"round_{kind}" for kind in halves]
        definitions = Definitions(Algebra(self.angles, limit, neutral), KnownMasks())
        constants = Constants(self.angles, weights)
        both = constants, constants.by_blocks(reference.graph, half)

        chunks = self._chunks = (Chunks(reference), Chunks(candidate))

        def tensors(side: int, more: Mapping[int, Leaf], sizes: Mapping[Expr, Expr]) -> ModelTensors:
            leaves = {**leaves_of(models, pairs, side), **more}
            inputs = read_inputs(models[side], leaves, question.lengths[side], unpadded=unpadded)
            inputs, own = replace(inputs, lengths={**sizes, **inputs.lengths}), chunks[side]
            return ModelTensors(models[side], table(), inputs, definitions, both[side], own.rules, own.steps)

        first = tensors(0, latent_leaves(self.expanded, reference), {})
        more = {candidate.graph.reads[pair.cache.read].index: leaf_of(pair, first, candidate) for pair in self.expanded}
        self.sides = first, tensors(1, more, _given_sizes(first, candidate, question.given))
        for given in question.given:
            self.sides[1].replace(given.candidate, partial(_in_place, first, given))
        self.sides[1].assume(first)
        # Layer by layer, because the number of elements in one evaluation is limited.
        self.results = [*self._written(pairs), *self._outputs(question.outputs), *question.results]
        self._layers = layers

    def _outputs(self, names: Iterable[str]) -> Iterable[ComparedResult]:
        for name in names:
            values = [model.graph.writes.get(name) for model in self.models]
            left, right = (None if node is None else node.source() for node in values)
            if left is not None:
                axes = tuple(range(left.rank or 0))
                same = right if right is not None and right.rank == left.rank and _is_typed(left, right) else None
                yield ComparedResult(name, left, same, (axes, axes))

    def _written(self, pairs: Collection[Carried]) -> Iterable[ComparedResult]:
        by_name = {pair.name: pair for pair in pairs}
        replaced = latents_of(self.expanded)
        for extra in self.expanded:
            value, windows = written(self.models[1], extra.cache), (extra.part, extra.window)
            yield ComparedResult(extra.cache.name, extra.source, value, (extra.order, (0, 1, 2, 3)), windows)
        for cache in analyze_caches(self.models[0]).caches:
            pair = by_name.get(cache.name)
            value = written(self.models[0], cache)
            if value is None and pair is not None and pair.candidate.write is not None:
                value = self.models[0].graph.reads[cache.read].outputs[0]
            if value is None or cache in replaced:
                continue
            if pair is None:
                yield ComparedResult(cache.name, value, None, ((), ()))
            else:
                yield ComparedResult(
                    cache.name, value, written(self.models[1], pair.candidate), pair.orders(), pair.windows()
                )
        for pair in pairs:
            first = starts(self.models, pair)
            if first is not None:
                yield ComparedResult(f"{pair.name} before the first step", *first, pair.orders(), pair.windows())

    def expression(self, side: int, value: Value, order: tuple[int, ...], window: CacheWindow | None = None) -> Expr:
        """Return a value as an expression of indices in common order.

        Args:
            side: 0 for the reference, 1 for the candidate.
            value: Value of this model.
            order: Its axes in common order.
            window: Part of the value; ``None`` for all elements.
        """
        tensors = self.sides[side]
        sizes = list(tensors.shape(value))
        if window is not None:
            sizes[window.axis] = ex.number(window.count)
        own: list[Expr] = [ex.ZERO] * len(sizes)
        for place, axis in enumerate(order):
            own[axis] = index_along(f"x{place}", sizes[axis])
        index = tuple(own) if window is None else window.shifted(tuple(own), window.first)
        return tensors.definitions.algebra.cases(tensors.of(value, index))

    def _is_filled(self, side: int, value: Value, order: tuple[int, ...], window: CacheWindow | None) -> bool:
        """Return whether the elements outside a zero-filled window are 0 after the step."""
        if window is None or not window.is_filled:
            return True
        size = self.sides[side].shape(value)[window.axis].as_number
        if not isinstance(size, int):
            return False
        rest = CacheWindow(window.axis, window.count, size - window.count, is_filled=True)
        return self.expression(side, value, order, rest) is ex.ZERO

    @property
    def rows(self) -> int | None:
        """Return the number of rows of the shortest recognized rotary table; ``None`` without any."""
        return min(self.angles.rows, default=None)

    @property
    def chunks(self) -> tuple[str, ...]:
        """Return operators that compute states of chunks, found to be linear attention by random inputs."""
        return tuple(dict.fromkeys(name for chunks in self._chunks for name in chunks.names))

    @property
    def assumed(self) -> tuple[str, ...]:
        """Return the assumptions on inputs, besides those of all models with caches.

        For example, an attention_mask that multiplies hidden states has the length of the new tokens, in a model whose
        states have fixed sizes.
        """
        assumptions: dict[str, None] = {}
        if self.rounded_to is not None:
            assumptions[f"rounding to {self.rounded_to} is ignored"] = None
        for model, tensors in zip(self.models, self.sides, strict=True):
            mask = model.graph.parameters.get(MASK)
            has_mask = mask is not None and mask.rank == 2 and bool(analyze_caches(model).caches)
            if mask is not None and has_mask and tensors.shape(mask)[1] is LENGTH:
                assumptions[f"{MASK} has the shape [batch, new tokens]"] = None
            if moves_slots(model):
                assumptions[f"{SOURCE_SLOTS} and {NEW_SLOTS} moved slots of the caches before"] = None
            if moves_slots(model) and PAST_LENGTH in model.graph.parameters:
                assumptions[f"{PAST_LENGTH} is the number of positions before the step"] = None
            assumptions |= dict.fromkeys(f"{name} is 0" for name in sorted(kept_logits(model.graph)))
            if any(stores_window(node) for node in model.graph.of_op("GroupQueryAttention")):
                assumptions["caches of a window store all positions that the window shows"] = None
            if begins_at_1(model):
                assumptions["cuts of caches keep slot 0, as on GPU plugins of OpenVINO"] = None
        assumptions |= dict.fromkeys(self._joined_inputs())
        if self.shared:
            assumptions[f"{', '.join(self.shared)} are equal in all rows that continue one sequence"] = None
        return tuple(assumptions)

    def _joined_inputs(self) -> Iterator[str]:
        """Yield the axes of inputs that only the candidate broadcasts to each other, as text."""
        first: dict[Expr, dict[Expr, str]] = {}
        inputs = [model.graph.parameters for model in self.models]
        for name in sorted(inputs[0].keys() & inputs[1].keys()):
            values = [side[name] for side in inputs]
            if values[0].rank == values[1].rank is not None:
                shapes = [tensors.shape(value) for tensors, value in zip(self.sides, values, strict=True)]
                for axis, (size, own) in enumerate(zip(*shapes, strict=True)):
                    first.setdefault(own, {}).setdefault(size, f"axis {axis} of {name}")
        for own, places in first.items():
            begin, *others = places.values() if own.op != "number" else ("",)
            yield from (f"{begin} has the size of {place}" for place in others)

    def operators(self, results: Iterable[ComparedResult]) -> int:
        """Return the number of the candidate's operators upstream of ``results``."""
        values = [result.candidate for result in results if result.candidate is not None]
        return len(upstream_operators(self.models[1].graph, values))

    def unequal_or_downstream(self) -> list[ComparedResult]:
        """Return the results that are not proven equal, and all results downstream of their producers.

        A fused attention operator returns both a cache and a result that is computed from the cache.
        """
        graph, unequal, downstream = self.models[1].graph, [], set[int]()
        for result in self.results:
            node = None if result.candidate is None else result.candidate.node
            if node not in downstream:
                if self.is_equal(result):
                    continue
                if result.candidate is not None:
                    producer = graph.producer(result.candidate)
                    uses = graph.forward(producer.outputs, lambda use: use.node.outputs)
                    downstream |= {producer.index, *(use.node.index for use in uses)}
            unequal.append(result)
        return unequal

    def unequal(self) -> list[ComparedResult]:
        """Return the results that are not proven equal."""
        return [result for result in self.results if not self.is_equal(result)]

    @cached_property
    def _of_equal_layers(self) -> set[ComparedResult]:
        """Return the caches of the first layers, up to one that is not proven equal."""
        proven, written = set[ComparedResult](), {result.name: result for result in self.results}
        names = {pair.name: pair.candidate.name for pair in self.pairs}
        layers = EqualLayers(self.sides, names.keys())
        for number, (first, second) in enumerate(() if self._layers is None or self.expanded else self._layers.parts):
            if first.exit is None or second.exit is None or {*map(names.get, first.caches)} != {*second.caches}:
                break
            axes = tuple(range(first.exit.rank or 0))
            own = [written[name] for name in first.caches if name in written]
            ends = [*own, ComparedResult("between layers", first.exit, second.exit, (axes, axes))]
            values = tuple((end.reference, end.candidate) for end in ends if end.candidate is not None)
            layer = LayerPair((first, second), values, tuple((end.orders, end.windows) for end in ends))
            if not layers.prove(layer, f"layer {number}", partial(self._are_equal, ends)):
                break
            proven.update(own)
        return proven

    def _are_equal(self, results: Iterable[ComparedResult]) -> bool:
        return all(map(self._is_equal, results))

    def is_equal(self, result: ComparedResult) -> bool:
        """Return whether a result is proven equal in both models for every input."""
        return result in self._of_equal_layers or self._is_equal(result)

    def _is_equal(self, result: ComparedResult) -> bool:
        if result.candidate is None:
            return False
        try:
            values = (result.reference, result.candidate)
            parts = list(zip(range(2), values, result.orders, result.windows, strict=True))
            ranks = [len(self.sides[side].shape(value)) for side, value, *_ in parts]
            if not all(_covers(rank, *part[2:]) for rank, part in zip(ranks, parts, strict=True)):
                return False
            sizes = [
                [
                    ex.number(window.count) if window and window.axis == axis else self.sides[side].shape(value)[axis]
                    for axis in order
                ]
                for side, value, order, window in parts
            ]
            if sizes[0] != sizes[1] or not all(self._is_filled(*part) for part in parts):
                return False
            left, right = (self.expression(*part) for part in parts)
        except UnknownError:
            return False
        if left is not right:
            # A definition splits indices by the sizes that divide them, which may make both sides equal.
            definitions = self.sides[0].definitions
            left, right = (definitions.abstract("result", (), (side,), ()) for side in (left, right))
        return left is right and not ex.uses([left], "opaque")


def _is_typed(reference: Value, candidate: Value) -> bool:
    """Return whether an output has the reference's type; f32 replaces types of 16 bits."""
    own, kind = candidate.element_type, reference.element_type
    return own == kind or (kind in HALVES and own == "f32")


def _covers(rank: int, order: tuple[int, ...], window: CacheWindow | None) -> bool:
    """Return whether an order has all axes, except that of a one-element window.

    Such a window selects the keys of a cache of keys and values.
    """
    selected = {window.axis} if window is not None and window.count == 1 else set[int]()
    return selected.union(order) == {*range(rank)}


def _given_sizes(reference: ModelTensors, candidate: Model, given: Iterable[Given]) -> dict[Expr, Expr]:
    """Return the sizes of tensors assumed to be equal, by dimension of the candidate."""
    sizes = candidate.analysis(infer_exact_sizes)
    known: dict[Expr, Expr] = {}
    for tensor in given:
        shape, own = reference.shape(tensor.reference), sizes.shape(tensor.candidate)
        pairs = [] if own is None else [(shape[axis], own[place]) for axis, place in zip(*tensor.orders, strict=True)]
        known |= {dimension: size for size, dimension in pairs if as_dimension(dimension) is not None}
    return known


def _in_place(reference: ModelTensors, given: Given, index: Index) -> Expr:
    """Return the reference's element at the place of an element of the candidate."""
    own = [index[axis] for axis in given.orders[1]]
    return reference.of(given.reference, tuple(own[given.orders[0].index(axis)] for axis in range(len(own))))
