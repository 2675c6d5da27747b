"""Find rotary embedding of queries and keys, and compute its tables.

Exporters decompose rotary embedding in many ways. Therefore an element of the result is expressed in elements of its
source, whatever the operators in between are. A pair (x, y) must become ``x * cos - y * sin`` and
``y * cos + x * sin``, with the same factors in both.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

import numpy

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.masks import find_elements
from graphpass.analysis.caches.step_lengths import POSITIONS
from graphpass.analysis.equations.activations import find_activations
from graphpass.analysis.equations.evaluation import SampledStep, evaluation_at
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Elements, Index, UnknownError
from graphpass.analysis.symbolic.evaluate import arrays_at
from graphpass.analysis.symbolic.expressions import ONE, ZERO, Expr, number
from graphpass.analysis.symbolic.rounding import Array
from graphpass.analysis.symbolic.step import BATCH, LENGTH, PAST, unpadded
from graphpass.ir.graph import Node, Value
from graphpass.ir.miss import MissError
from graphpass.ir.model import Model
from graphpass.ir.operators import ARITHMETIC, GATHERS, LAYOUT, SLICES, SPLITS

#: Index of the row and of the new token that an angle is of, and the token's position without padding.
ROW, QUERY, POSITION = ex.index("row", BATCH), ex.index("query", LENGTH), ex.length("position")

#: Operators between a projection and its rotated result.
_ROTATES = ARITHMETIC | GATHERS | LAYOUT | SLICES | SPLITS | {"Concat", "Negative", "RotaryEmbedding"}

#: Maximum number of operators between them; the fixtures have 26.
_MOST = 96

#: Number of positions of a table that are computed at once.
_CHUNK = 1024

#: Number of positions at which factors that read tables are compared.
_SAMPLES = 6


@dataclass(frozen=True, slots=True)
class Rotation:
    """A value that is ``source`` rotated by positions.

    Attributes:
        source: ``[batch, heads, length, head_dim]``, or ``[batch, length, heads, head_dim]`` if ``heads_last``.
        result: The rotated value; its axes of heads and length may be swapped.
        heads: Number of heads.
        head_dim: Size of a head.
        size: Number of rotated channels, the first of each head.
        interleaved: Whether pairs are channels ``2 i`` and ``2 i + 1``; otherwise ``i`` and ``i + size / 2``.
        counts_slots: Whether positions are slots of the cache, not input ``position_ids``.
        cos: The cosine at `ROW`, `QUERY` and an index of pairs.
        sin: The sine at `ROW`, `QUERY` and an index of pairs.
    """

    source: Value
    result: Value
    heads_last: bool
    heads: int
    head_dim: int
    size: int
    interleaved: bool
    counts_slots: bool
    cos: Expr
    sin: Expr

    @property
    def signature(self) -> Hashable:
        """Return a key that is equal for rotations by equal angles."""
        return self.cos, self.sin, self.size, self.interleaved, self.counts_slots


def find_rotation(model: Model, value: Value, size: int) -> Rotation | None:
    """Return the rotation whose result is ``value``; ``None`` if not found.

    Args:
        model: The model.
        value: A query or key of rank 4.
        size: Size of its heads.
    """
    elements, data = model.analysis(find_elements), model.analysis(find_activations)
    has_past = bool(analyze_caches(model).of_kind("kv"))
    for source in _sources(model, value):
        try:
            rotation = _rotation(elements.cut(source, data), source, value, size, has_past=has_past)
        except UnknownError:
            return None
        if rotation is not None:
            return rotation
    return None


def at_position(expr: Expr) -> Expr:
    """Return an angle without padding, with `POSITION` in place of past and query index."""
    plain = unpadded(expr)
    return ex.substitute(plain, {QUERY: ex.subtract(POSITION, PAST) if ex.contains([plain], PAST) else POSITION})


def restarts(*exprs: Expr) -> bool:
    """Return whether angles count from the first token of each step, regardless of the past."""
    plain = [unpadded(expr) for expr in exprs]
    return ex.contains(plain, QUERY) and not ex.contains(plain, PAST)


def query_place(sizes: Index) -> Index:
    """Return the index at `ROW` and `QUERY`; other axes get index variables."""
    own = {ONE: ZERO, BATCH: ROW, LENGTH: QUERY}
    return tuple(own.get(size, ex.index(f"channel {axis}", size)) for axis, size in enumerate(sizes))


def find_restart(model: Model) -> Node | None:
    """Return the first Cos of positions that restart in each step, for `Model.analysis`.

    Only models with growing caches are checked. Their steps after a past are rotated like the first step, as in exports
    of Bamba by transformers 5.
    """
    if not analyze_caches(model).of_kind("kv"):
        return None
    elements = model.analysis(find_elements)
    cosines = model.graph.of_op("Cos")
    return next((node for node in cosines if _is_of_restart(elements, node.outputs[0])), None)


def _is_of_restart(elements: Elements, value: Value) -> bool:
    try:
        place = query_place(elements.shape(value))
        return QUERY in place and restarts(elements.of(value, place))
    except UnknownError:
        return False


def rotation_tables(model: Model, rotation: Rotation, count: int) -> tuple[Array, Array]:
    """Compute the cosines and sines of positions 0 to ``count - 1``.

    Args:
        model: The model.
        rotation: A rotation in ``model``; ``size`` is its number of rotated channels.
        count: Number of positions.

    Returns:
        Cosines and sines, ``[count, size / 2]`` each, in the type of the rotation's result.

    Raises:
        MissError: The angles of one position depend on other positions.
    """
    for factor in (rotation.cos, rotation.sin):
        others = [part for part in ex.walk(at_position(factor)) if part.op in {"length", "opaque", "running_sum"}]
        if not {*others} <= {POSITION}:
            node = model.graph.producer(rotation.result)
            raise MissError(node, "the angles of a position depend on other positions of the step")
    parts = [
        _angles(model, rotation, numpy.arange(start, min(start + _CHUNK, count))) for start in range(0, count, _CHUNK)
    ]
    cos, sin = (numpy.concatenate([part[place] for part in parts]) for place in (0, 1))
    return cos, sin


def _sources(model: Model, value: Value) -> Iterator[Value]:
    """Yield values of rank 4 through which all activations reach ``value``, nearest first."""
    graph, data = model.graph, model.analysis(find_activations)
    frontier = {value}
    for _ in range(_MOST):
        last = max(frontier, key=lambda value: value.node)
        node = graph.producer(last)
        if node.op not in _ROTATES:
            return
        frontier.remove(last)
        frontier |= {value for value in node.sources if value.node in data}
        if len(frontier) == 1 and next(iter(frontier)).rank == 4:
            yield next(iter(frontier))
        if not frontier:
            return


@dataclass(frozen=True, slots=True)
class _Layout:
    """Axes of a tensor of heads: ``[batch, heads, length, head_dim]``, or the middle axes swapped."""

    heads_last: bool
    heads: int
    rows: Expr

    def place(self, head: Expr, channel: Expr) -> Index:
        """Return the index of an element at `ROW` and `QUERY`."""
        row = ZERO if self.rows is ONE else ROW
        return (row, QUERY, head, channel) if self.heads_last else (row, head, QUERY, channel)


def _layout(elements: Elements, value: Value, size: int) -> _Layout | None:
    shape = elements.shape(value)
    if len(shape) != 4 or LENGTH not in shape[1:3] or shape[3] is not number(size):
        return None
    heads_last = shape[1] is LENGTH
    heads = shape[2 if heads_last else 1].as_number
    return _Layout(heads_last, heads, shape[0]) if isinstance(heads, int) else None


def _rotation(elements: Elements, source: Value, result: Value, size: int, *, has_past: bool) -> Rotation | None:
    """Return the rotation between two values; ``elements`` are expressed in those of ``source``."""
    before, after = _layout(elements, source, size), _layout(elements, result, size)
    if before is None or after is None or before.heads != after.heads:
        return None
    head = ZERO if before.heads == 1 else ex.index("head", number(before.heads))

    def read(channel: Expr) -> Expr:
        return elements.of(source, before.place(head, channel))

    def turned(channel: Expr) -> Expr:
        return elements.of(result, after.place(head, channel))

    for count in _counts(turned(ex.index("channel", number(size))), size):
        for interleaved in (False, True):
            factors = _factors(read, turned, count, interleaved, f"round_{result.element_type}")
            rest = ex.add(number(count), ex.index("rest", number(size - count))) if count < size else None
            if factors is None or (rest is not None and turned(rest) is not read(rest)):
                continue
            inputs = {part.args[0] for part in ex.walk(*factors) if part.op == "read" and isinstance(part.args[0], str)}
            positions = elements.graph.parameters.get(POSITIONS)
            # Positions with several axes (images, video) are equal along all of them for text only.
            is_plain = positions is None or positions.rank == 2
            if (head is not ZERO and ex.contains(factors, head)) or not inputs <= {POSITIONS} or not is_plain:
                return None
            if has_past and restarts(*factors):
                return None
            heads_last = before.heads_last
            return Rotation(source, result, heads_last, before.heads, size, count, interleaved, not inputs, *factors)
    return None


def _counts(element: Expr, size: int) -> list[int]:
    """Return candidates for the number of rotated channels: all, or those before a bound."""
    bounds = {
        abs(factor)
        for part in ex.walk(element)
        if part.op == "not_positive"
        for monomial, factor in ex.polynomial(part.args[0]).items()
        if not monomial
    }
    near = {bound + away for bound in bounds for away in (-1, 0, 1)}
    return [
        size,
        *sorted(count for count in {*near, *(2 * half for half in near)} if 0 < count < size and not count % 2),
    ]


def _factors(
    read: Callable[[Expr], Expr], turned: Callable[[Expr], Expr], count: int, interleaved: bool, rounding: str
) -> tuple[Expr, Expr] | None:
    """Return cosine and sine if ``count`` channels are rotated in pairs, ignoring ``rounding``."""
    pair = ex.index("pair", number(count // 2))
    doubled = ex.multiply(number(2), pair)
    ends = (doubled, ex.add(doubled, ONE)) if interleaved else (pair, ex.add(pair, number(count // 2)))
    left, right = map(read, ends)
    first, second = (_coefficients(turned(end), left, right, rounding) for end in ends)
    if first is None or second is None:
        return None
    cos, sin = first[0], second[0]
    is_turned = sin is not ZERO and _are_equal(cos, second[1]) and _are_equal(ex.negative(first[1]), sin)
    return (cos, sin) if is_turned else None


def _coefficients(root: Expr, first: Expr, second: Expr, rounding: str) -> tuple[Expr, Expr] | None:
    """Return the coefficients of two elements in an expression that is linear in both.

    Args:
        root: The expression.
        first: The first element.
        second: The second element.
        rounding: Name of the function that rounds to the tensor's element type; it is ignored.
    """
    fed = {first, second}
    known: dict[Expr, tuple[Expr, Expr] | None] = {first: (ONE, ZERO), second: (ZERO, ONE)}
    for part in ex.walk(root):
        if part in known:
            continue
        operands = [operand for operand in part.operands if operand in fed]
        if not operands:
            known[part] = None
            continue
        fed.add(part)
        coefficients = [known[operand] for operand in operands]
        if part.op == "apply" and part.args[0] == rounding:
            known[part] = coefficients[0]
            continue
        if None in coefficients or part.op not in {"real_sum", "product", "quotient"}:
            return None
        pairs = [pair for pair in coefficients if pair is not None]
        if part.op == "real_sum":
            if len(operands) != len(part.args):
                return None
            known[part] = ex.add(*(pair[0] for pair in pairs)), ex.add(*(pair[1] for pair in pairs))
        elif len(operands) > 1 or (part.op == "quotient" and operands[0] is not part.args[0]):
            return None
        else:
            by = part.args[1] if operands[0] is part.args[0] else part.args[0]
            scale = ex.divide if part.op == "quotient" else ex.multiply
            # A product with 0 is 0 also where the factor may be undefined: the other coefficient has the same factor.
            scaled = [ZERO if coefficient is ZERO else scale(coefficient, by) for coefficient in pairs[0]]
            known[part] = scaled[0], scaled[1]
    return known.get(root)


def _are_equal(first: Expr, second: Expr) -> bool:
    """Return whether two factors are equal, compared by numbers if they read tables."""
    if first is second:
        return True
    plain = [at_position(factor) for factor in (first, second)]
    pairs = {part for part in ex.walk(*plain) if part.op == "index"}
    places = numpy.arange(_SAMPLES)[:, None] ** 3
    numbers = {POSITION: places} | {pair: numpy.arange(pair.args[1].as_number)[None] for pair in pairs}
    try:
        left, right = (arrays_at(factor, numbers) for factor in plain)
    except (KeyError, TypeError):
        return False
    return bool(numpy.ma.allequal(left, right))


def _rows(whole: Array, heads: int, length: int) -> Array | None:
    """Return ``whole`` as ``[batch, length, heads, head_dim]``; ``None`` for other shapes."""
    if whole.ndim != 4:
        return None
    if whole.shape[1:3] == (length, heads):
        return whole
    return whole.swapaxes(1, 2) if whole.shape[1:3] == (heads, length) else None


def _run(model: Model, rotation: Rotation, data: Array, places: Array) -> Array | None:
    """Rotate rows ``[batch, head_dim]`` to positions ``places``.

    Returns:
        ``[batch, length, heads, head_dim]``; ``None`` if its axes are ambiguous.

    Raises:
        MissError: A tensor cannot be computed.
    """
    # One head suffices unless a Reshape states the number of heads.
    for heads in dict.fromkeys((1, rotation.heads)):
        length = len(places)
        middle = (length, heads) if rotation.heads_last else (heads, length)
        whole = numpy.broadcast_to(data[:, None, None], (len(data), *middle, data.shape[-1]))
        try:
            rows = _rows(_run_heads(model, rotation, whole, places), heads, length)
        except MissError:
            if heads == rotation.heads:
                raise
            continue
        if rows is not None and (length != heads or heads == 1):
            return rows
    return None


def _run_heads(model: Model, rotation: Rotation, data: Array, places: Array) -> Array:
    positions = model.graph.parameters.get(POSITIONS)
    step = SampledStep(len(data), int(places[0]), len(places))
    feeds = {rotation.source: data}
    if positions is not None:
        feeds[positions] = numpy.broadcast_to(places[None], (step.batch, step.length))
    return evaluation_at(model, step, feeds).of(rotation.result)


def _angles(model: Model, rotation: Rotation, places: Array) -> tuple[Array, Array]:
    """Return cosines and sines of ``places``, ``[length, size / 2]``, by rotating pairs (1, 0)."""
    size, half = rotation.size, rotation.size // 2
    first = slice(0, size, 2) if rotation.interleaved else slice(0, half)
    second = slice(1, size, 2) if rotation.interleaved else slice(half, size)
    vector = numpy.zeros((1, rotation.head_dim), _dtype(rotation.source))
    vector[:, first] = 1
    rows = _run(model, rotation, vector, places)
    assert rows is not None
    return rows[0, :, 0, first], rows[0, :, 0, second]


def _dtype(value: Value) -> str:
    return {"f16": "float16", "f64": "float64"}.get(value.element_type, "float32")
