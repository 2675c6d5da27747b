"""Show that a mask is causal, windowed and padded, and nothing else.

Two witnesses have to agree: the mask is made of comparisons of positions and the padding mask alone, and computed for
chosen lengths it hides exactly what these hide. Lengths lie around the window and around each number that the mask is
made of, on both sides, since a mask may change there; and a few are long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy

from graphpass.analysis.attention.types import Mask
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.step_lengths import MASK
from graphpass.analysis.equations.evaluation import Evaluation
from graphpass.analysis.equations.operators import Array
from graphpass.analysis.equations.steps import Step, evaluation_at
from graphpass.analysis.masks.facts import MaskFacts, mask_facts
from graphpass.ir.constants import fold_scalar
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.model import Model
from graphpass.ir.operators import SHAPE_READERS
from graphpass.ir.pattern import Miss, MissError
from graphpass.ir.values import MASKED_BELOW

#: Rows of a batch: no padding, some on the left, on the right and in between.
_PATTERNS = 4

#: Longest sequence to compute a mask for, and the numbers around which one is computed.
_LONGEST, _MOST_NUMBERS = 1 << 17, 6

#: Long pasts, for what changes elsewhere.
_LONG = (100, 1000, 32000)


@dataclass(frozen=True, slots=True)
class ShownMask:
    """A mask that hides keys after the query, those before a window, and padding.

    Attributes:
        window: Number of positions that a query sees, itself included; ``None`` for all before it.
        is_padded: Whether it hides positions where input ``attention_mask`` is 0.
    """

    window: int | None
    is_padded: bool


def show_mask(model: Model, node: Node, masks: tuple[Mask, ...]) -> ShownMask | Miss:
    """Show the masks of one attention to be causal, windowed and padded.

    Args:
        model: The model.
        node: The attention, which a `Miss` names.
        masks: All masks of its scores.
    """
    try:
        return _shown(model, node, masks)
    except MissError as error:
        return error.miss


def _shown(model: Model, node: Node, masks: tuple[Mask, ...]) -> ShownMask:
    graph = model.graph
    window = _window_by_parts(graph, node, masks)
    made_of = list(graph.backward([mask.value for mask in masks], _contents))
    inputs = {one.outputs[0] for one in made_of if one.op == "Parameter"}
    padding = graph.parameters.get(MASK)
    if inputs - {padding}:
        raise MissError(node, f"its mask reads input {min(value.name for value in inputs - {padding})}")
    shown = ShownMask(window, is_padded=bool(inputs))
    # A constant that is cut to the step bounds the lengths that the model takes.
    limit = min((size for one in made_of for size in _square(one)), default=_LONGEST)
    has_past = bool(analyze_caches(model).of_kind("kv"))
    for chosen in _steps(window, sorted(_numbers(graph, made_of)), limit):
        step = chosen if has_past else Step(chosen.batch, 0, chosen.total)
        given = _padding(step)
        evaluation = evaluation_at(model, step, {padding: given} if padding is not None else {})
        if not _agree(_visible(evaluation, node, masks), _wanted(shown, step, given)):
            raise MissError(node, f"its mask hides other positions than it seems to, after {step.past} positions")
    return shown


def _window_by_parts(graph: Graph, node: Node, masks: tuple[Mask, ...]) -> int | None:
    facts = MaskFacts()
    for mask in masks:
        facts.add(mask_facts(graph, mask.value))
    if facts.unknown is not None:
        raise MissError(node, f"it is not known what its mask is made of, at {facts.unknown}")
    if others := facts.parts - {"causal", "input"}:
        raise MissError(node, f"its mask holds more than positions to hide: {', '.join(sorted(others))}")
    if "causal" not in facts.parts or len(facts.windows) > 1:
        raise MissError(node, "its mask is not causal" if "causal" not in facts.parts else "its mask has two windows")
    return next(iter(facts.windows), None)


def _contents(node: Node) -> tuple[Value | None, ...]:
    return () if node.op in SHAPE_READERS else node.inputs


def _square(node: Node) -> tuple[int, ...]:
    shape = node.outputs[0].shape if node.op == "Constant" else None
    size = shape[-1] if shape is not None and len(shape) > 1 and shape[-1] == shape[-2] else None
    return (size,) if isinstance(size, int) and size > 1 else ()


def _numbers(graph: Graph, made_of: Iterable[Node]) -> Iterator[int]:
    """Yield the whole numbers in a mask, at which it may change."""
    for node in made_of:
        number = fold_scalar(graph, node.outputs[0]) if node.op == "Constant" else None
        if number is not None and 8 < abs(number) < _LONGEST and number == int(number):
            yield abs(int(number))


def _steps(window: int | None, numbers: list[int], limit: int) -> Iterator[Step]:
    steps = [Step(_PATTERNS, 0, 5), Step(_PATTERNS, 4, 1), Step(_PATTERNS, 3, 4)]
    # Conditions on positions change at the numbers in them, and one on top of a window later by that.
    own = [] if window is None else [window]
    places = [*own, *numbers[:_MOST_NUMBERS]]
    for place in dict.fromkeys([*places, *(place + one for place in places for one in own)]):
        steps += [Step(_PATTERNS, max(place - 3, 1), 6), Step(_PATTERNS, place + 2, 1)]
        if place <= 64:
            steps.append(Step(_PATTERNS, 0, place + 3))
    steps += [Step(_PATTERNS, past, 2) for past in _LONG]
    return (step for step in steps if step.total <= limit)


def _padding(step: Step) -> Array:
    """Return masks ``[_PATTERNS, total]`` of rows without padding, and with it at each place."""
    mask = numpy.ones((_PATTERNS, step.total), numpy.int64)
    count = max(step.total // 3, 1)
    mask[1, :count] = 0
    # The last position stays, so that a row of one query sees something.
    mask[2, -1 - count : -1] = 0
    mask[3, 1::3] = 0
    return mask


def _wanted(mask: ShownMask, step: Step, padding: Array) -> Array:
    keys, queries = numpy.arange(step.total), numpy.arange(step.past, step.total)[:, None]
    seen = keys <= queries
    if mask.window is not None:
        seen &= keys > queries - mask.window
    whole = numpy.broadcast_to(seen, (step.batch, 1, step.length, step.total))
    return whole & (padding != 0)[:, None, None, :] if mask.is_padded else whole


def _agree(visible: Array, wanted: Array) -> bool:
    sizes = (wanted.shape[0], visible.shape[1] if visible.ndim == 4 else 1, *wanted.shape[2:])
    if any(own not in {1, size} for own, size in zip(visible.shape[::-1], sizes[::-1], strict=False)):
        return False
    # A row that sees nothing is padding itself, and no other row sees it.
    return not ((visible != wanted) & wanted.any(axis=-1, keepdims=True)).any()


def _visible(evaluation: Evaluation, node: Node, masks: tuple[Mask, ...]) -> Array:
    """Return the positions that ``masks`` leave, ``[batch, heads or 1, length, total]``."""
    found: Array = numpy.ones((), bool)
    for mask in masks:
        held = evaluation.of(mask.value)
        if mask.merges_heads:
            held = held.reshape(_PATTERNS, -1, *held.shape[1:])
        if mask.keeps is not None:
            found = found & (held.astype(bool) == mask.keeps)
            continue
        added = -held if mask.is_subtracted else held
        hidden = added < MASKED_BELOW
        if ((added != 0) & ~hidden).any():
            raise MissError(node, "its mask adds numbers to positions that it shows")
        found = found & ~hidden
    return found
