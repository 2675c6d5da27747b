"""Decoders whose layers keep caches of random kinds in random forms, and what an inventory must say of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy
from hypothesis import strategies as some
from support.graph_builder import HEADS, HIDDEN, ROOM, SIZE, GraphBuilder

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.ir.cache import Axes

#: What an inventory must say of a cache: (past, present, kind, role, layer, axes).
Row = tuple[str, str | None, str, str, int | None, Axes]

LETTERS = "BHLD"


@dataclass(frozen=True)
class Layer:
    """One layer.

    Attributes:
        form: Which of `FORMS`.
        order: Order of the axes of a cache that grows, as letters of batch, heads, length and head_dim.
        rank: Of a recurrent state.
        declares: Whether inputs and outputs declare their sizes; else nothing but the rank.
    """

    form: str
    order: str = LETTERS
    rank: int = 3
    declares: bool = True


@dataclass(frozen=True)
class Decoder:
    """A model and what must be said of it."""

    model: OnnxModel
    kind: str
    rows: frozenset[Row]


def decoder(layers: list[Layer]) -> Decoder:
    """A model of these layers, between an embedding and a head."""
    build = GraphBuilder()
    build.input("ids", ["B", "N"], "i64")
    hidden = build.op("Gather", build.weight(7, HIDDEN), "ids", axis=0)
    rows: set[Row] = set()
    counted = 0
    for number, layer in enumerate(layers):
        # Every layer normalizes and adds, as all decoders do.
        normalized = build.op("LayerNormalization", hidden, build.weight(HIDDEN))
        made, told = FORMS[layer.form](build, normalized, layer, f"{number}")
        is_layer = any(kind in {"kv", "linear", "cross"} for _, _, kind, _, _ in told)
        rows |= {(*row[:4], counted if is_layer else None, row[4]) for row in told}
        counted += is_layer
        hidden = build.op("Add", hidden, made)
    build.output(build.op("MatMul", hidden, build.weight(HIDDEN, 7)), "logits", ["B", "N", 7])
    kinds = {kind for _, _, kind, *_ in rows}
    kind = "hybrid" if {"kv", "linear"} <= kinds else next((one for one in ("kv", "linear") if one in kinds), "none")
    return Decoder(build.model(), kind, frozenset(rows))


def decoders() -> some.SearchStrategy[Decoder]:
    """Random decoders of up to four layers."""
    layers = some.builds(
        Layer,
        form=some.sampled_from(sorted(FORMS)),
        order=some.permutations(LETTERS).map("".join),
        rank=some.integers(3, 5),
        declares=some.booleans(),
    )
    return some.lists(layers, min_size=1, max_size=4).map(decoder)


def _sizes(shape: list[Any], layer: Layer) -> list[Any]:
    return shape if layer.declares else [None] * len(shape)


def _heads(build: GraphBuilder, hidden: str) -> str:
    flat = build.op("MatMul", hidden, build.weight(HIDDEN, HEADS * SIZE))
    return build.op("Transpose", build.op("Reshape", flat, build.ints(0, 0, HEADS, SIZE)), perm=[0, 2, 1, 3])


def _attend(build: GraphBuilder, hidden: str, key: str, value: str) -> str:
    made = build.attend(key, value, query=_heads(build, hidden))
    flat = build.op("Reshape", build.op("Transpose", made, perm=[0, 2, 1, 3]), build.ints(0, 0, HEADS * SIZE))
    return build.op("MatMul", flat, build.weight(HEADS * SIZE, HIDDEN))


def _axes(order: str) -> Axes:
    return Axes(*(order.index(letter) for letter in LETTERS))


def _ordered(order: str, length: str) -> list[Any]:
    return [{"B": "B", "H": HEADS, "L": length, "D": SIZE}[letter] for letter in order]


def _appended(build: GraphBuilder, hidden: str, layer: Layer, name: str) -> tuple[str, list[Any]]:
    """Keys and values that grow, in any order of the axes."""
    there = [LETTERS.index(letter) for letter in layer.order]
    back = [layer.order.index(letter) for letter in LETTERS]
    read, told = [], []
    for role in ("key", "value"):
        past = build.input(f"past_{role}_{name}", _sizes(_ordered(layer.order, "P"), layer))
        new = build.op("Transpose", _heads(build, hidden), perm=there)
        whole = build.op("Concat", past, new, axis=layer.order.index("L"))
        read.append(build.op("Transpose", whole, perm=back))
        present = f"present_{role}_{name}"
        build.output(whole, present, _sizes(_ordered(layer.order, "T"), layer))
        told.append((past, present, "kv", role, _axes(layer.order)))
    return _attend(build, hidden, *read), told


def _in_place(build: GraphBuilder, hidden: str, layer: Layer, name: str) -> tuple[str, list[Any]]:
    """Keys and values in buffers of a fixed capacity, written at a position that is an input."""
    place = build.input(f"place_{name}", [1, 1, "N", 1], "i64")
    read, told = [], []
    for role in ("key", "value"):
        past = build.input(f"past_{role}_{name}", _sizes(["B", HEADS, ROOM, SIZE], layer))
        new = _heads(build, hidden)
        where = build.op("Expand", place, build.op("Shape", new))
        whole = build.op("ScatterElements", past, where, new, axis=2)
        read.append(whole)
        build.output(whole, f"present_{role}_{name}", _sizes(["B", HEADS, ROOM, SIZE], layer))
        told.append((past, f"present_{role}_{name}", "kv", role, _axes(LETTERS)))
    return _attend(build, hidden, *read), told


def _cross(build: GraphBuilder, hidden: str, layer: Layer, name: str) -> tuple[str, list[Any]]:
    """Keys and values that grow, and behind them those of an encoder, only read."""
    made, told = _appended(build, hidden, layer, name)
    hidden = build.op("Add", hidden, made)
    shape = _sizes(["B", HEADS, "E", SIZE], layer)
    pasts = [build.input(f"past_cross_{role}_{name}", shape) for role in ("key", "value")]
    told += [
        (past, None, "cross", f"cross_{role}", _axes(LETTERS))
        for past, role in zip(pasts, ("key", "value"), strict=True)
    ]
    return _attend(build, hidden, *pasts), told


def _convolution(build: GraphBuilder, hidden: str, layer: Layer, name: str) -> tuple[str, list[Any]]:
    """The last three columns, before a convolution over them and the new ones."""
    shape = _sizes(["B", HIDDEN, 3], layer)
    past = build.input(f"past_conv_{name}", shape)
    columns = build.op("Transpose", build.op("MatMul", hidden, build.weight(HIDDEN, HIDDEN)), perm=[0, 2, 1])
    joined = build.op("Concat", past, columns, axis=2)
    build.output(
        build.op("Slice", joined, build.ints(-3), build.ints(2**40), build.ints(2)), f"present_conv_{name}", shape
    )
    made = build.op("Conv", joined, build.weight(HIDDEN, 1, 4), group=HIDDEN)
    made = build.op("MatMul", build.op("Transpose", made, perm=[0, 2, 1]), build.weight(HIDDEN, HIDDEN))
    return made, [(past, f"present_conv_{name}", "linear", "conv", Axes(batch=0))]


def _recurrent(build: GraphBuilder, hidden: str, layer: Layer, name: str) -> tuple[str, list[Any]]:
    """A state of any rank that decays and to which the step's mean is added."""
    more = [2] * (layer.rank - 3)
    shape = _sizes(["B", HIDDEN, *more, 2], layer)
    past = build.input(f"past_state_{name}", shape)
    mean = build.op("ReduceMean", build.op("MatMul", hidden, build.weight(HIDDEN, HIDDEN)), build.ints(1), keepdims=0)
    new = build.op("Reshape", mean, build.ints(0, 0, *[1] * (layer.rank - 2)))
    decayed = build.op("Mul", past, build.weight(HIDDEN, *more, 2))
    state = build.op("Add", decayed, new)
    build.output(state, f"present_state_{name}", shape)
    axes = list(range(2, layer.rank))
    seen = build.op("Unsqueeze", build.op("ReduceSum", state, build.ints(*axes), keepdims=0), build.ints(1))
    made = build.op("MatMul", build.op("Mul", hidden, seen), build.weight(HIDDEN, HIDDEN))
    return made, [(past, f"present_state_{name}", "linear", "recurrent", Axes(batch=0))]


def _network(build: GraphBuilder, hidden: str, layer: Layer, name: str) -> tuple[str, list[Any]]:
    """An ordinary GRU."""
    shape = _sizes([1, "B", HIDDEN], layer)
    past = build.input(f"past_gru_{name}", shape)
    steps = build.op("Transpose", hidden, perm=[1, 0, 2])
    weights = (build.weight(1, 3 * HIDDEN, HIDDEN), build.weight(1, 3 * HIDDEN, HIDDEN))
    made, last = build.op("GRU", steps, *weights, "", "", past, outputs=2, hidden_size=HIDDEN)
    build.output(last, f"present_gru_{name}", shape)
    made = build.op("Transpose", build.op("Squeeze", made, build.ints(1)), perm=[1, 0, 2])
    return made, [(past, f"present_gru_{name}", "other", "recurrent", Axes(batch=1))]


def _plain(build: GraphBuilder, hidden: str, layer: Layer, name: str) -> tuple[str, list[Any]]:
    """A layer that keeps nothing."""
    inner = build.op("Tanh", build.op("MatMul", hidden, build.weight(HIDDEN, 5)))
    return build.op("Mul", build.op("MatMul", inner, build.weight(5, HIDDEN)), build.constant(numpy.float32(0.5))), []


FORMS = {
    "appended": _appended,
    "in place": _in_place,
    "cross": _cross,
    "convolution": _convolution,
    "recurrent": _recurrent,
    "network": _network,
    "plain": _plain,
}
