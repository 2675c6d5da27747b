"""Map dimensions of inputs to lengths of the step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, TypeAlias

from graphpass.analysis.attention.find import Scores, find_attention, read_scores
from graphpass.analysis.attention.types import OPERATORS, Attention
from graphpass.analysis.symbolic.elements import Elements
from graphpass.analysis.symbolic.equal_sizes import Vector, as_dimension, dimensions
from graphpass.analysis.symbolic.expressions import ZERO, Expr
from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.analysis.symbolic.step import BATCH, ENCODED, LENGTH, PAST, TOTAL
from graphpass.analysis.symbolic.table import TABLE
from graphpass.ir.cache import Cache
from graphpass.ir.graph import Graph, Value
from graphpass.ir.inputs import ENCODER_STATES, TOKEN_INPUTS
from graphpass.ir.model import Model
from graphpass.ir.operators import CASTS, SHAPE_READERS
from graphpass.ir.values import REALS

#: The padding mask ``[batch, past + length]`` and the positions ``[batch, length]``.
MASK, POSITIONS = "attention_mask", "position_ids"

Length: TypeAlias = Literal["batch", "past", "length", "total", "encoded"]
"""A length of one step: rows, positions before it, new tokens, positions after it, positions of the encoder."""

_INPUTS: dict[str, tuple[Length, Length]] = {
    # Tokens are first: a mask that multiplies them shares their dimension, which is the length.
    **dict.fromkeys((*TOKEN_INPUTS, POSITIONS), ("batch", "length")),
    MASK: ("batch", "total"),
    ENCODER_STATES: ("batch", "encoded"),
}

#: The sequence axis of caches, by kind.
_GROWN: dict[str, Length] = {"kv": "past", "cross": "encoded"}


def step_lengths(model: Model, caches: Iterable[Cache]) -> dict[Expr, Length]:
    """Return the lengths of a step by free dimension of inputs, as terms of `infer_sizes`.

    Args:
        model: The model.
        caches: Its caches; the sequence axis of ``kv`` caches is the past, that of ``cross`` caches the encoder's.
    """
    graph, sizes = model.graph, model.analysis(infer_sizes)
    shapes: list[tuple[Value, dict[int | None, Length]]] = [
        (graph.parameters[name], dict(enumerate(lengths)))
        for name, lengths in _INPUTS.items()
        if name in graph.parameters
    ]
    for cache in caches:
        if cache.kind in _GROWN:
            axes: dict[int | None, Length] = {cache.axes.batch: "batch", cache.axes.sequence: _GROWN[cache.kind]}
            shapes.append((graph.reads[cache.read].outputs[0], axes))
    by_term: dict[Expr, Length] = {}
    for value, lengths in shapes:
        for axis, size in enumerate(sizes.shape(value) or ()):
            if axis in lengths and as_dimension(size) is not None:
                by_term.setdefault(size, lengths[axis])
    return by_term


def step_elements(model: Model, caches: Iterable[Cache]) -> Elements:
    """Return the symbolic elements of the tensors of ``model``, in lengths of its step.

    Args:
        model: The model.
        caches: See `known_lengths`.
    """
    return Elements(model.graph, model.analysis(infer_sizes), TABLE, *known_lengths(model, caches))


def known_lengths(model: Model, caches: Iterable[Cache]) -> tuple[dict[Expr, Expr], frozenset[int]]:
    """Return lengths by dimension, and the indices of Parameters with only 0 and 1.

    Lengths are derived by dataflow from sizes of scores and inputs of masks, independent of their names.

    Args:
        model: The model.
        caches: Its caches; the sequence axis of ``kv`` caches is the past, which is 0 without such caches.
    """
    caches, graph, sizes = list(caches), model.graph, model.analysis(infer_sizes)
    named = step_lengths(model, caches)
    attended = [_attended(model, attention) for attention in model.analysis(find_attention)]
    numbers = list(_row_numbers(graph))
    # Tokens are upstream of a mask that an indexer computes, but are not a mask.
    own, of_encoder = (
        [value for value in _mask_inputs(graph, chosen) if value not in numbers]
        for chosen in _split_masks(attended, named)
    )
    masks = [value for value in own if value not in of_encoder]
    seconds = [{as_dimension(shape[1]) for shape in map(sizes.shape, values) if shape} for values in (masks, numbers)]
    # If a mask has the length of the new tokens, the sizes are consistent only without a past.
    is_of_prompts = not seconds[0].isdisjoint(seconds[1] - {None})
    past = PAST if any(cache.kind == "kv" for cache in caches) and not is_of_prompts else ZERO
    total = TOTAL if past is PAST else LENGTH
    names = {"batch": BATCH, "past": past, "length": LENGTH, "total": total, "encoded": ENCODED}
    lengths: dict[Expr, Expr] = {dimension: names[name] for dimension, name in named.items()}
    for value in numbers:
        _name(lengths, sizes.shape(value), LENGTH)
    for _, shapes in attended:
        if any(len(shape) < 3 for shape in shapes):
            continue
        # Axis 0 of a product of rank 3 merges batch and heads.
        rows = dimensions(shapes[0][0])
        if len(rows) == 1:
            lengths.setdefault(rows[0][0], BATCH)
        queries, keys = (shape[-2] for shape in shapes)
        if as_dimension(queries) is not None:
            lengths.setdefault(queries, LENGTH)
        terms = [term for term, _ in dimensions(keys)]
        new = [term for term in terms if lengths.get(term) not in (PAST, LENGTH)]
        if len(new) == 1:
            is_old = any(lengths.get(term) is LENGTH for term in terms)
            lengths.setdefault(new[0], total if len(terms) == 1 else past if is_old else LENGTH)
    ends = (*((value, total) for value in masks), *((value, ENCODED) for value in of_encoder))
    bits = frozenset(value.node for value, end in ends if _name(lengths, sizes.shape(value), end))
    return lengths, bits


def _split_masks(
    attended: Iterable[tuple[list[Value], list[Vector]]], named: Mapping[Expr, Length]
) -> tuple[list[Value], list[Value]]:
    """Return the masks of self-attention, and those of attention to positions of an encoder."""
    own: list[Value] = []
    of_encoder: list[Value] = []
    for masks, shapes in attended:
        keys = [named.get(term) for shape in shapes[1:] if len(shape) > 1 for term, _ in dimensions(shape[-2])]
        (of_encoder if "encoded" in keys else own).extend(masks)
    return own, of_encoder


def _attended(model: Model, attention: Attention) -> tuple[list[Value], list[Vector]]:
    """Return the masks of an attention, and shapes with queries and keys on axis -2."""
    graph, sizes, node = model.graph, model.analysis(infer_sizes), attention.node
    if attention.is_fused:
        ports = OPERATORS[node.op]
        masks = node.present((*ports.masks, *ports.lengths))
        return masks, [sizes.shape(attention.query) or (), sizes.shape(attention.key) or ()]
    scores = read_scores(graph, node)
    if not isinstance(scores, Scores):
        return [], [()]
    shape = sizes.shape(scores.product.outputs[0]) or ()
    return [mask.value for mask in scores.masks], [shape, (*shape[:-2], *reversed(shape[-2:]))]


def _mask_inputs(graph: Graph, masks: Iterable[Value | None]) -> Iterator[Value]:
    """Yield the inputs ``[batch, positions]`` that masks are computed from."""
    for node in graph.backward(masks, lambda node: () if node.op in SHAPE_READERS else node.inputs):
        if node.op == "Parameter" and node.name != POSITIONS and node.outputs[0].element_type not in REALS:
            yield from (value for value in node.outputs if value.rank == len(_INPUTS[MASK]))


def _row_numbers(graph: Graph) -> Iterator[Value]:
    """Yield the inputs ``[batch, length]`` that index a Gather, such as tokens and learned positions."""
    for node in graph.of_op("Gather"):
        index = graph.producer(graph.look_through(node.source(1), CASTS))
        if index.op == "Parameter" and index.outputs[0].rank == len(_INPUTS[POSITIONS]):
            yield index.outputs[0]


def _name(lengths: dict[Expr, Expr], shape: Vector | None, second: Expr) -> bool:
    """Set lengths of dimensions ``[batch, second]``.

    Returns:
        Whether axis 1 has no other length.
    """
    if shape is None:
        return False
    known = [
        dimension is None or lengths.setdefault(dimension, length) is length
        for size, length in zip(shape, (BATCH, second), strict=True)
        for dimension in [as_dimension(size)]
    ]
    return known[1]
