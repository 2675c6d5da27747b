"""Run unequal operators of two models on random numbers in place of equal values.

Prompts cover a small range of these values. Clipping, for example, only has an effect on large values, which are rare.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.last_logits import gives_one_token
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import UnknownError
from graphpass.analysis.symbolic.evaluate import value_at
from graphpass.analysis.symbolic.step import BATCH, LENGTH, PAST
from graphpass.errors import UnsupportedError
from graphpass.ir.quantizers import rounds_activations
from graphpass.ir.values import HALVES
from graphpass.runtime.backends.device import Device
from graphpass.runtime.backends.request import open_request
from graphpass.runtime.sessions.inputs import StepInputs
from graphpass.verify.conditioning import OF_ITS_OWN, REORDERED
from graphpass.verify.evaluate import differing, plan_of, random_step
from graphpass.verify.structure.cuts import CutTensor, Member, downstream, find_cuts
from graphpass.verify.structure.definition import KnownWeight
from graphpass.verify.structure_proof import Fed, Region

if TYPE_CHECKING:
    from graphpass.analysis.symbolic.expressions import Expr
    from graphpass.ir.graph import Node, Value
    from graphpass.ir.model import Model
    from graphpass.runtime.sessions.inputs import Array
    from graphpass.verify.structure.caches import Carried
    from graphpass.verify.structure.comparer import Comparer
    from graphpass.verify.structure.question import ComparedResult
    from graphpass.verify.structure.regions import Unequal
    from graphpass.verify.structure.tensors import DefinedTensors

#: Batch size, past and number of new tokens of each step.
_STEPS = ((1, 3, 3), (3, 0, 5), (2, 5, 1), (5, 2, 1))

#: The steps for models without caches, with past and new tokens as one prompt.
_PROMPTS = tuple((batch, 0, past + length) for batch, past, length in _STEPS)

#: Standard deviations of the random numbers: that of most normalized activations, and that of outliers.
_SCALES = (1.0, 8.0)


#: Tries of each relative change of channels, for rounding boundaries that few activations are near.
_TRIES = 4

#: Factor of squares of random numbers that are fed where roots of others are not defined: near epsilons of norms.
_SMALL = 1e-5


class NotFedError(Exception):
    """Raised if unequal operators cannot be run separately, with the reason."""


def feed(comparer: Comparer, results: Sequence[ComparedResult], unequal: Unequal) -> Fed:
    """Run both models on random numbers in place of equal values, and compare the results.

    Both models get the same random caches. Steps have one to five rows, with and without a past, and no padding.

    Args:
        comparer: Both models as expressions.
        results: Outputs and caches whose equality is not proven.
        unequal: The candidate's operators upstream of ``results``.

    Returns:
        The runs, with the first difference; the reason if the operators cannot be run separately.
    """
    try:
        return _run(comparer, results, unequal)
    except NotFedError as error:
        return Fed(reason=str(error))
    except UnsupportedError as error:
        return Fed(reason=f"the unequal operators cannot be run separately: {error.message}")


def _run(comparer: Comparer, results: Sequence[ComparedResult], unequal: Unequal) -> Fed:
    if (reason := _unlike_weights(comparer, unequal)) is not None:
        raise NotFedError(reason)
    pairs = [(result.reference, result.candidate) for result in results if result.candidate is not None]
    counts = {len(comparer.pairs), *(len(analyze_caches(model).caches) for model in comparer.models)}
    if len(pairs) < len(results) or len(counts) > 1 or any(any(pair.windows()) for pair in comparer.pairs):
        raise NotFedError("caches differ in number or size")
    ends = [[pair[side] for pair in pairs] for side in (0, 1)]
    cuts = find_cuts(comparer.sides, ends, unequal)
    if not cuts:
        raise NotFedError("no equal values separate the unequal operators from tokens and caches")
    parts = [_Part(model, side, comparer.pairs, cuts, ends[side]) for side, model in enumerate(comparer.models)]
    names = tuple(cut.name for cut in cuts)
    last_only = any(gives_one_token(model) for model in comparer.models)
    rounds = rounds_activations(comparer.models[0])
    runs = 0
    for scale in _SCALES:
        for batch, past, length in _STEPS if comparer.pairs else _PROMPTS:
            length = min(part.plan.tokens_at_once(past, length, batch) for part in parts)
            step = random_step(parts[0].plan, batch, past, length)
            numbers = [_random(_sizes(cut.sizes, step, cut.name), cut.name, scale) for cut in cuts]
            carried = _carried(comparer.pairs, step, scale)
            first = parts[0].run(step, numbers, carried)
            if not _all_finite(first):
                numbers = [_SMALL * np.square(array) for array in numbers]
                first = parts[0].run(step, numbers, carried)
            if not _all_finite(first):
                # Results after an overflow of the reference are not compared.
                continue
            second = parts[1].run(step, numbers, carried)
            runs += 1
            for result, *arrays in zip(results, first, second, strict=True):
                left, right = (array.transpose(order) for array, order in zip(arrays, result.orders, strict=True))
                if last_only and result.name == "logits":
                    left, right = left[:, -1:], right[:, -1:]
                if (difference := differing(result.name, left, right)) is not None:
                    if rounds and _changes_alike(parts[0], step, (numbers, carried), (first, second)):
                        break
                    node = _first_reader(cuts, unequal)
                    return Fed(names, runs, Region(node.name, node.op, difference))
    if not runs:
        raise NotFedError("the reference has non-finite results in all runs")
    return Fed(names, runs)


def _changes_alike(
    part: _Part,
    step: StepInputs,
    fed: tuple[Sequence[Array], Sequence[Array]],
    results: tuple[Sequence[Array], Sequence[Array]],
) -> bool:
    """Return whether the reference's results change as much if inputs have rounding errors.

    The rule is that of `after_reordered_sums`, for models that round activations to integers.

    Args:
        part: The reference.
        step: The step.
        fed: Values of cuts, and of caches.
        results: Those of the reference, and those of the candidate.
    """
    numbers, carried = fed
    changes = np.array(_distances(*results))
    largest = np.zeros_like(changes)
    for off_by, seed in itertools.product(REORDERED, range(_TRIES)):
        random = np.random.default_rng(seed)
        nudged = [array * (1 + random.choice([-1, 1], array.shape[-1:]) * 2.0**off_by) for array in numbers]
        own = part.run(step, [array.astype(np.float32) for array in nudged], carried)
        largest = np.maximum(largest, _distances(results[0], own))
        if (changes <= OF_ITS_OWN * largest).all():
            return True
    return False


def _distances(left: Iterable[Array], right: Iterable[Array]) -> list[float]:
    """Return the root mean square of the difference of each two results."""
    pairs = zip(left, right, strict=True)
    return [float(np.sqrt(np.square(one.astype(np.float64) - other).mean())) for one, other in pairs]


def _all_finite(results: Iterable[Array]) -> bool:
    return all(np.isfinite(array).all() for array in results)


def _first_reader(cuts: Iterable[CutTensor], unequal: Unequal) -> Node:
    fed = {member.value for cut in cuts for member in cut.members[1]}
    readers = (node for node in unequal.operators if not fed.isdisjoint(node.inputs))
    return min(readers, key=lambda node: node.index)


def _unlike_weights(comparer: Comparer, unequal: Unequal) -> str | None:
    """Return the reason that the models may differ by rounding; ``None`` if they may not."""
    types = [{value.element_type for node in model.graph.nodes for value in node.outputs} for model in comparer.models]
    if types[0] & HALVES != types[1] & HALVES:
        return "the models differ in their 16-bit types"
    reference, candidate = comparer.sides
    constants = [node.outputs[0] for node in reference.graph.of_op("Constant")]
    read = [value for node in unequal.operators for value in node.sources]
    own = [value for value in read if candidate.graph.producer(value).op == "Constant"]
    if _weights_in(candidate, own) - _weights_in(reference, constants):
        return "operators read weights that the reference does not have"
    return None


def _weights_in(tensors: DefinedTensors, constants: Iterable[Value]) -> set[str]:
    weights = set[str]()
    for value in constants:
        try:
            parts = ex.walk(tensors.of(value, tensors.own_index(value)))
        except UnknownError:
            continue
        weights |= {
            part.args[0].content for part in parts if part.op == "read" and isinstance(part.args[0], KnownWeight)
        }
    return weights


def _sizes(sizes: Iterable[Expr], step: StepInputs, name: str) -> tuple[int, ...]:
    lengths = {BATCH: step.batch, PAST: step.past, LENGTH: step.length}

    def unknown(*_: object) -> int:
        raise NotFedError(f"sizes of {name} depend on values of inputs")

    try:
        return tuple(int(value_at(size, lengths, unknown)) for size in sizes)
    except KeyError as error:
        raise NotFedError(f"sizes of {name} are not known") from error


def _carried(pairs: Sequence[Carried], step: StepInputs, scale: float) -> list[Array]:
    """Return random contents of each cache before the step, with axes in the common order.

    Raises:
        NotFedError: A cache is not in f32, or its sizes are unknown.
    """
    carried = []
    for pair in pairs:
        cache = pair.reference
        if cache.element_type != "f32" or pair.candidate.element_type != "f32" or cache.shape is None:
            raise NotFedError(f"cache {pair.name} is not in f32")
        free = {cache.axes.batch: step.batch, cache.axes.sequence: step.past}
        declared = [free.get(axis, cache.shape[axis]) for axis in pair.orders()[0]]
        sizes = tuple(size for size in declared if isinstance(size, int))
        if len(sizes) < len(declared):
            raise NotFedError(f"sizes of cache {pair.name} are not known")
        is_empty = cache.axes.sequence is None and not step.past
        carried.append(_random(sizes, pair.name, 0.0 if is_empty else scale))
    return carried


def _random(shape: tuple[int, ...], name: str, scale: float) -> Array:
    random = np.random.default_rng(zlib.crc32(name.encode()))
    return (random.standard_normal(shape) * scale).astype(np.float32)


class _Part:
    """Computes the results of one model from the values at cuts, caches and inputs."""

    def __init__(
        self, model: Model, side: int, pairs: Iterable[Carried], cuts: Iterable[CutTensor], ends: Sequence[Value]
    ) -> None:
        self.plan, graph = plan_of(model), model.graph
        self._cuts = {member.value: (place, member) for place, cut in enumerate(cuts) for member in cut.members[side]}
        self._caches: dict[Value, tuple[int, tuple[int, ...]]] = {}
        for place, pair in enumerate(pairs):
            node = graph.reads.get((pair.candidate if side else pair.reference).read)
            if node is not None:
                self._caches[node.outputs[0]] = place, pair.orders()[side]
        fed = {**self._cuts, **self._caches}
        nodes = list(downstream(graph, ends, fed))
        if any(node.op == "ReadValue" for node in nodes):
            raise NotFedError("a variable is not a cache")
        copy, same = model.excerpt(nodes)
        twins = copy.graph.nodes
        self._names = {
            value: copy.graph.producer(twins[same[use.node.index]].source(use.port)).name
            for value in fed
            for use in graph.uses(value)
            if use.node.index in same
        }
        rewriter = copy.rewriter()
        self._outputs = [f"graphpass/end/{place}" for place in range(len(ends))]
        for name, value in zip(self._outputs, ends, strict=True):
            twin = twins[same[value.node]].outputs[value.port]
            rewriter.output(name, rewriter.native(twin), value.element_type, [None] * (value.rank or 0))
        rewriter.finish()
        self._inputs = {port.name for port in copy.inputs}
        self._request = open_request(copy, Device())

    def run(self, step: StepInputs, numbers: Sequence[Array], carried: Sequence[Array]) -> list[Array]:
        """Return the values of ``ends`` after one step."""
        feeds = self.plan.feeds(step)
        for value, name in self._names.items():
            if value in self._caches:
                place, order = self._caches[value]
                feeds[name] = carried[place].transpose(np.argsort(order))
            else:
                place, member = self._cuts[value]
                feeds[name] = _laid_out(numbers[place], member, step)
        results = self._request.infer({name: array for name, array in feeds.items() if name in self._inputs})
        return [results[name].copy() for name in self._outputs]


def _laid_out(numbers: Array, member: Member, step: StepInputs) -> Array:
    """Return the values of a cut in the axes and sizes of the tensor ``member``."""
    sizes = _sizes(member.sizes, step, member.value.name)
    ordered = numbers.transpose(np.argsort(member.axes))
    aligned = ordered.reshape([size if axis in member.axes else 1 for axis, size in enumerate(sizes)])
    return np.array(np.broadcast_to(aligned, sizes))
