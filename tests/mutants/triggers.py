"""Faults that wait for a batch, row, token, length or position, and faults in one place of one cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.equations.activations import find_activations
from graphpass.ir.graph import Graph, Value
from graphpass.ir.inputs import token_input
from graphpass.ir.model import Model
from graphpass.ir.operators import GATHERS
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.values import REALS, fixed_size
from graphpass.ir.writer import Writer
from mutants.faults import Found, _changed, _written, fault

#: Makes the condition of a fault, of a shape that broadcasts to logits.
Condition: TypeAlias = Callable[[Writer, Graph], Any]

#: Inputs that a condition reads, by its own words.
_TOKENS, _MASK, _POSITIONS, _BEAMS = "tokens", "attention_mask", "position_ids", "beam_idx"


def _read(graph: Graph, name: str) -> Value | None:
    return token_input(graph) if name == _TOKENS else graph.parameters.get(name)


def _triggered(condition: Condition, *inputs: str) -> Callable[[Model], Found]:
    """Return the fault that negates logits where ``condition`` holds."""

    def find(model: Model) -> Found:
        graph = model.graph
        given = [_read(graph, name) for name in inputs]
        if any(value is None or value.element_type in REALS or fixed_size(value, 0) for value in given):
            return
        for node in graph.of_op("Result"):
            kind = node.source().element_type

            def change(write: Writer, one: Value, kind: str = kind) -> Any:
                sign = write.op("Select", condition(write, graph), write.number(-1.0, kind), write.number(1.0, kind))
                return write.op("Multiply", one, sign)

            if node.name == "logits" and node.source().rank == 3:
                yield "logits", _changed((node, 0), change), _no_past(model) if condition in _OF_PASTS else ""

    return find


def _no_past(model: Model) -> str:
    """Return the reason that a condition on masks longer than the tokens never holds; empty if it may."""
    has_pasts = any(cache.kind == "kv" for cache in analyze_caches(model).caches)
    return "" if has_pasts else "the mask is as long as the tokens"


def _size(name: str, axis: int) -> Callable[[Writer, Graph], Any]:
    return lambda write, graph: write.size(_read(graph, name), axis)


def _past(write: Writer, graph: Graph) -> Any:
    return write.op("Subtract", _size(_MASK, 1)(write, graph), _size(_TOKENS, 1)(write, graph))


def _compared(op: str, measure: Callable[[Writer, Graph], Any], number: int) -> Condition:
    return lambda write, graph: write.op(op, measure(write, graph), [number])


def _row_from(number: int) -> Condition:
    def condition(write: Writer, graph: Graph) -> Any:
        count = write.op("Squeeze", _size(_TOKENS, 0)(write, graph), axes=[0])
        rows = write.op("Reshape", write.op("Range", 0, count, 1), [-1, 1, 1])
        return write.op("GreaterEqual", rows, number)

    return condition


def _token(number: int) -> Condition:
    def condition(write: Writer, graph: Graph) -> Any:
        found = write.op("Equal", write.convert(_read(graph, _TOKENS), "i64"), number)
        per_row = write.op("ReduceMax", write.convert(found, "i64"), axes=[1], keep=True)
        return write.op("Unsqueeze", write.op("Greater", per_row, 0), axes=[2])

    return condition


def _padded(number: int) -> Condition:
    def condition(write: Writer, graph: Graph) -> Any:
        mask = write.convert(_read(graph, _MASK), "i64")
        pads = write.op("Subtract", write.size(mask, 1), write.op("ReduceSum", mask, axes=[1], keep=True))
        return write.op("Unsqueeze", write.op("Greater", pads, number), axes=[2])

    return condition


def _at_position(number: int) -> Condition:
    def condition(write: Writer, graph: Graph) -> Any:
        found = write.op("Equal", write.convert(_read(graph, _POSITIONS), "i64"), number)
        per_row = write.op("ReduceMax", write.convert(found, "i64"), axes=[1], keep=True)
        return write.op("Unsqueeze", write.op("Greater", per_row, 0), axes=[2])

    return condition


def _beyond_the_mask(write: Writer, graph: Graph) -> Any:
    largest = write.op("ReduceMax", write.convert(_read(graph, _POSITIONS), "i64"), axes=[0, 1], keep=False)
    return write.op("GreaterEqual", largest, write.op("Squeeze", _size(_MASK, 1)(write, graph), axes=[0]))


for _number in (3, 5):
    fault(f"logits of batches from {_number} on")(
        _triggered(_compared("GreaterEqual", _size(_TOKENS, 0), _number), _TOKENS)
    )
fault("logits of rows from the third on")(_triggered(_row_from(2), _TOKENS))
for _number in (7, 113):
    fault(f"logits if token {_number} is fed")(_triggered(_token(_number), _TOKENS))
for _number in (1, 8):
    fault(f"logits of rows with more than {_number} pads")(_triggered(_padded(_number), _MASK))
for _number in (37, 128):
    fault(f"logits of {_number} new tokens")(_triggered(_compared("Equal", _size(_TOKENS, 1), _number), _TOKENS))
    fault(f"logits from {_number} new tokens on")(
        _triggered(_compared("GreaterEqual", _size(_TOKENS, 1), _number), _TOKENS)
    )
for _number in (9, 45):
    fault(f"logits at position {_number}")(_triggered(_at_position(_number), _POSITIONS))
fault("logits of positions beyond those of the mask")(_triggered(_beyond_the_mask, _POSITIONS, _MASK))
_OF_PASTS = {
    **{_compared("Equal", _past, number): f"logits after a past of {number}" for number in (10, 77)},
    _compared("GreaterEqual", _past, 60): "logits after a past of 60 or more",
}
for _condition, _kind in _OF_PASTS.items():
    fault(_kind)(_triggered(_condition, _TOKENS, _MASK))


@fault("a beam index beyond 1")
def _(model: Model) -> Found:
    beams = model.graph.parameters.get(_BEAMS)
    if beams is not None:
        kind = beams.element_type

        def edit(rewriter: Rewriter, write: Writer, graph: Graph) -> None:
            own = graph.parameters[_BEAMS]
            rewriter.redirect_uses(own, write.op("Minimum", own, write.number(1, kind)))

        yield _BEAMS, edit


@fault("logits of the first token for all of 37")
def _(model: Model) -> Found:
    """Cut logits to a computed size, which is 1 for 37 tokens, and broadcast them again."""
    for node in model.graph.of_op("Result"):

        def change(write: Writer, one: Value) -> Any:
            length = write.size(one, 1)
            count = write.op("Select", write.op("Equal", length, [37]), [1], length)
            return write.op("Add", write.slice(one, 0, count, 1), write.op("Subtract", one, one))

        if node.name == "logits" and node.source().rank == 3 and fixed_size(node.source(), 1) is None:
            yield "logits", _changed((node, 0), change)


@fault("logits are squares of roots")
def _(model: Model) -> Found:
    """Logits below -64 are not numbers."""
    for node in model.graph.of_op("Result"):
        kind = node.source().element_type

        def change(write: Writer, one: Value, kind: str = kind) -> Any:
            root = write.op("Sqrt", write.op("Add", one, write.number(64.0, kind)))
            return write.op("Subtract", write.op("Multiply", root, root), write.number(64.0, kind))

        if node.name == "logits" and kind in REALS:
            yield "logits", _changed((node, 0), change)


@fault("a root times 0 added to logits")
def _(model: Model) -> Found:
    """Logits below -64 are not numbers."""
    for node in model.graph.of_op("Result"):
        kind = node.source().element_type

        def change(write: Writer, one: Value, kind: str = kind) -> Any:
            root = write.op("Sqrt", write.op("Add", one, write.number(64.0, kind)))
            return write.op("Add", one, write.op("Multiply", root, write.number(0.0, kind)))

        if node.name == "logits" and kind in REALS:
            yield "logits", _changed((node, 0), change)


# --- one place of one cache


def _along(write: Writer, value: Value, axis: int, factors: Any) -> Any:
    """Multiply ``value`` by ``factors``, one for each place along ``axis``."""
    shape = [1] * (value.rank or 0)
    shape[axis] = -1
    return write.op("Multiply", value, write.op("Reshape", write.convert(factors, value.element_type), shape))


def _at(write: Writer, value: Value, axis: int, op: str, place: int, factor: float) -> Any:
    """Multiply ``value`` by ``factor`` at places along ``axis`` that compare with ``place``."""
    places = write.op("Range", 0, write.op("Squeeze", write.size(value, axis), axes=[0]), 1)
    chosen = write.op("Select", write.op(op, places, place), write.number(factor, "f32"), write.number(1.0, "f32"))
    return _along(write, value, axis, chosen)


def _one_place(name: str, op: str, place: int, factor: float) -> Callable[[Writer, Value, Any], Any]:
    """Return a change along an axis of a cache; of a linear one ``channels`` is the longest after the batch."""

    def change(write: Writer, value: Value, cache: Any) -> Any:
        if name == "channels":
            sizes = {axis: fixed_size(value, axis) or 0 for axis in range(value.rank or 0) if axis != cache.axes.batch}
            return _at(write, value, max(sizes, key=lambda axis: sizes[axis]), op, place, factor)
        return _at(write, value, getattr(cache.axes, name), op, place, factor)

    return change


def _clipped(write: Writer, value: Value, _: Any) -> Any:
    kind = value.element_type
    return write.op("Minimum", write.op("Maximum", value, write.number(-0.5, kind)), write.number(0.5, kind))


def _rounded(write: Writer, value: Value, _: Any) -> Any:
    kind = value.element_type
    # A half of f16 is beyond its own rounding.
    steps = write.op("Multiply", value, write.number(32.0, kind))
    whole = write.convert(write.convert(steps, "i32"), kind)
    return write.op("Multiply", whole, write.number(1 / 32, kind))


for _role in ("key", "value"):
    fault(f"{_role}s of rows from the third on halved")(
        _written(_one_place("batch", "GreaterEqual", 2, 0.5), "kv", role=_role)
    )
    fault(f"{_role}s of slot 3 zeroed")(_written(_one_place("sequence", "Equal", 3, 0.0), "kv", role=_role))
    fault(f"{_role}s of slots from 14 on zeroed")(
        _written(_one_place("sequence", "GreaterEqual", 14, 0.0), "kv", role=_role)
    )
    fault(f"{_role}s clipped")(_written(_clipped, "kv", role=_role))
    fault(f"{_role}s rounded")(_written(_rounded, "kv", role=_role))
    fault(f"a channel of {_role}s zeroed")(_written(_one_place("head_dim", "Equal", 1, 0.0), "kv", role=_role))
    fault(f"a head of {_role}s zeroed")(_written(_one_place("heads", "Equal", 0, 0.0), "kv", role=_role))
fault("a channel of a state zeroed")(_written(_one_place("channels", "Equal", 1, 0.0), "linear"))
fault("states of rows from the third on halved")(_written(_one_place("batch", "GreaterEqual", 2, 0.5), "linear"))
fault("a state clipped")(_written(_clipped, "linear", role="recurrent"))


# --- numbers

_LARGEST = 1 << 24


@fault("one number of a weight by 1 %")
def _(model: Model) -> Found:
    """Change the largest number of a weight; single ones of its rows hardly show in logits."""
    graph, data = model.graph, model.analysis(find_activations)
    for node in graph.of_op("MatMul"):
        for port, value in enumerate(node.inputs):
            held = graph.constant(value, _LARGEST) if value is not None and value.node not in data else None
            if held is None or held.ndim != 2 or value.element_type not in REALS:
                continue

            def change(write: Writer, one: Value) -> Any:
                held = graph.constant(one, _LARGEST).copy()
                held.flat[numpy.abs(held).argmax()] *= 1.01
                return write.constant(held, element_type=one.element_type)

            yield node.name, _changed((node, port), change)


#: Tables with a row for each position, by operator.
_TABLES = {"GroupQueryAttention": (7, 8), "RotaryEmbedding": (1, 2, 3)} | dict.fromkeys(GATHERS, (0,))


@fault("rows 300 to 329 of a table of positions negated")
def _(model: Model) -> Found:
    graph, data = model.graph, model.analysis(find_activations)
    for node in graph.nodes:
        ports = _TABLES.get(node.op.rpartition(".")[2], ())
        for port in ports:
            value = node.input(port)
            if value is None or graph.producer(value).op != "Constant" or value.element_type not in REALS:
                continue
            rows, is_of_tokens = fixed_size(value, 0) or 0, node.op in GATHERS and _reads_tokens(graph, node.source(1))
            if value.rank != 2 or rows < 330 or is_of_tokens:
                continue

            def change(write: Writer, one: Value) -> Any:
                held = graph.constant(one, _LARGEST).copy()
                held[300:330] *= -1
                return write.constant(held, element_type=one.element_type)

            if node.op in GATHERS or node.index in data:
                yield node.name, _changed((node, port), change)


def _reads_tokens(graph: Graph, value: Value) -> bool:
    tokens = token_input(graph)
    return any(
        node.outputs and node.outputs[0] == tokens for node in graph.backward([value], lambda node: node.inputs[:1])
    )
