"""Caches in other layouts, written in place, quantized, shared, and cut to a window; attention is written out."""

from __future__ import annotations

import numpy

from graphpass.dialects.onnx.model import OnnxModel
from support.graph_builder import HEADS, HIDDEN, ROOM, SIZE, GraphBuilder, builder_with_hidden_states

LATENT, WINDOW, LAYERS = 5, 4, 2


def sequence_first() -> OnnxModel:
    """[batch, sequence, heads, size], transposed after it is read."""
    build = builder_with_hidden_states()
    whole = [
        build.op("Concat", past, build.new([0, 0, HEADS, SIZE]), axis=1)
        for past in build.pasts(["B", "P", HEADS, SIZE])
    ]
    out = build.attend(*(build.op("Transpose", cache, perm=[0, 2, 1, 3]) for cache in whole))
    build.presents(*whole, ["B", "T", HEADS, SIZE])
    build.result(out)
    return build.model()


def merged_heads() -> OnnxModel:
    """[batch, sequence, heads * size]: split into heads after it is read."""
    build = builder_with_hidden_states()
    whole, read = [], []
    for past in build.pasts(["B", "P", HEADS * SIZE]):
        new = build.op("MatMul", "hidden", build.weight(HIDDEN, HEADS * SIZE))
        whole.append(build.op("Concat", past, new, axis=1))
        parted = build.op("Reshape", whole[-1], build.ints(0, -1, HEADS, SIZE))
        read.append(build.op("Transpose", parted, perm=[0, 2, 1, 3]))
    out = build.attend(*read)
    build.presents(*whole, ["B", "T", HEADS * SIZE])
    build.result(out)
    return build.model()


def split_heads(*, reads_whole: bool = False) -> OnnxModel:
    """Caches [batch, sequence, heads * size], of which each step splits the past and merges the present."""
    build = builder_with_hidden_states()
    pasts, wholes = build.pasts(["B", "P", HEADS * SIZE]), []
    for past in pasts:
        split = build.op("Reshape", past, build.ints(0, 0, HEADS, -1))
        wholes.append(build.op("Concat", build.op("Transpose", split, perm=[0, 2, 1, 3]), build.heads(), axis=2))
    rows = [build.op("Transpose", whole, perm=[0, 2, 1, 3]) for whole in wholes]
    merged = [build.op("Reshape", each, build.ints(0, 0, -1)) for each in rows]
    build.presents(*merged, ["B", "T", HEADS * SIZE])
    if reads_whole:
        build.output(build.op("Neg", pasts[0]), "other", ["B", "P", HEADS * SIZE])
    build.result(build.attend(*wholes))
    return build.model()


def one_head() -> OnnxModel:
    """[batch, sequence, size]: one head for all queries, without an axis of its own."""
    build = builder_with_hidden_states()
    whole, read = [], []
    for past in build.pasts(["B", "P", SIZE]):
        new = build.op("MatMul", "hidden", build.weight(HIDDEN, SIZE))
        whole.append(build.op("Concat", past, new, axis=1))
        read.append(build.op("Unsqueeze", whole[-1], build.ints(1)))
    out = build.attend(*read)
    build.presents(*whole, ["B", "T", SIZE])
    build.result(out)
    return build.model()


def latent() -> OnnxModel:
    """One latent vector a position, of which weights make keys and values after it is read; and a rotated key part."""
    build = builder_with_hidden_states()
    past, past_part = build.input("past_latent", ["B", "P", LATENT]), build.input("past_part", ["B", 1, "P", 2])
    whole = build.op("Concat", past, build.op("MatMul", "hidden", build.weight(HIDDEN, LATENT)), axis=1)
    new_part = build.op("Unsqueeze", build.op("MatMul", "hidden", build.weight(HIDDEN, 2)), build.ints(1))
    part = build.op("Concat", past_part, new_part, axis=2)
    both = build.op("MatMul", whole, build.weight(LATENT, HEADS * 2 * SIZE))
    both = build.op("Transpose", build.op("Reshape", both, build.ints(0, -1, HEADS, 2 * SIZE)), perm=[0, 2, 1, 3])
    key, value = build.op("Split", both, build.ints(SIZE, SIZE), outputs=2, axis=3)
    shape = build.op("Concat", *(build.op("Shape", key, start=0, end=3), build.ints(2)), axis=0)
    key = build.op("Concat", key, build.op("Expand", part, shape), axis=3)
    query = build.op("Concat", build.heads(), build.op("Slice", build.heads(), *map(build.ints, (0, 2, 3))), axis=3)
    out = build.attend(key, value, query=query)
    build.present(whole, "present_latent", ["B", "T", LATENT])
    build.present(part, "present_part", ["B", 1, "T", 2])
    build.result(out)
    return build.model()


def latent_head(tokens: str = "ids") -> OnnxModel:
    """A latent laid out as one head, and keys into which both parts are written, as transformers 5 exports them."""
    build = builder_with_hidden_states(tokens)
    past, past_part = build.input("past_latent", ["B", 1, "P", LATENT]), build.input("past_part", ["B", 1, "P", 2])
    new = build.op("Unsqueeze", build.op("MatMul", "hidden", build.weight(HIDDEN, LATENT)), build.ints(1))
    whole = build.op("Concat", past, new, axis=2)
    new_part = build.op("Unsqueeze", build.op("MatMul", "hidden", build.weight(HIDDEN, 2)), build.ints(1))
    part = build.op("Concat", past_part, new_part, axis=2)
    both = build.op("MatMul", build.op("Squeeze", whole, build.ints(1)), build.weight(LATENT, HEADS * 2 * SIZE))
    both = build.op("Transpose", build.op("Reshape", both, build.ints(0, -1, HEADS, 2 * SIZE)), perm=[0, 2, 1, 3])
    key, value = build.op("Split", both, build.ints(SIZE, SIZE), outputs=2, axis=3)
    rows = build.op("Shape", key, start=0, end=3)
    sides = (key, build.op("Expand", part, build.op("Concat", rows, build.ints(2), axis=0)))
    joined = build.op(
        "Expand", build.constant(numpy.float32(0)), build.op("Concat", build.ints(SIZE + 2), rows, axis=0)
    )
    for side, places in zip(sides, (range(SIZE), range(SIZE, SIZE + 2)), strict=True):
        indices = build.op("Unsqueeze", build.ints(*places), build.ints(1))
        joined = build.op("ScatterND", joined, indices, build.op("Transpose", side, perm=[3, 0, 1, 2]))
    key = build.op("Transpose", joined, perm=[1, 2, 3, 0])
    query = build.op("Concat", build.heads(), build.op("Slice", build.heads(), *map(build.ints, (0, 2, 3))), axis=3)
    out = build.attend(key, value, query=query)
    build.present(whole, "present_latent", ["B", 1, "T", LATENT])
    build.present(part, "present_part", ["B", 1, "T", 2])
    build.result(out)
    return build.model()


def absorbed() -> OnnxModel:
    """A latent cache that attention reads as it is: weights are multiplied with the query and the result instead."""
    build = builder_with_hidden_states()
    past, past_part = build.input("past_latent", ["B", "P", LATENT]), build.input("past_part", ["B", "P", 2])
    whole = build.op("Concat", past, build.op("MatMul", "hidden", build.weight(HIDDEN, LATENT)), axis=1)
    part = build.op("Concat", past_part, build.op("MatMul", "hidden", build.weight(HIDDEN, 2)), axis=1)
    read, rotated = (build.op("Unsqueeze", cache, build.ints(1)) for cache in (whole, part))
    scores = [
        build.op("MatMul", build.op("MatMul", build.heads(), weight), build.op("Transpose", key, perm=[0, 1, 3, 2]))
        for weight, key in ((build.weight(SIZE, LATENT), read), (build.weight(SIZE, 2), rotated))
    ]
    seen = build.op("Softmax", build.op("Add", *scores), axis=-1)
    out = build.op("MatMul", build.op("MatMul", seen, read), build.weight(LATENT, SIZE))
    build.present(whole, "present_latent", ["B", "T", LATENT])
    build.present(part, "present_part", ["B", "T", 2])
    build.result(out)
    return build.model()


def packed_content() -> OnnxModel:
    """Key and value of a position side by side: [batch, heads, sequence, 2 * size]."""
    build = builder_with_hidden_states()
    past = build.input("past", ["B", HEADS, "P", 2 * SIZE])
    new = build.op("Concat", build.heads(), build.heads(), axis=3)
    whole = build.op("Concat", past, new, axis=2)
    key, value = build.op("Split", whole, build.ints(SIZE, SIZE), outputs=2, axis=3)
    out = build.attend(key, value)
    build.present(whole, "present", ["B", HEADS, "T", 2 * SIZE])
    build.result(out)
    return build.model()


def packed_pair(stacks: bool = True) -> OnnxModel:
    """An axis of 2 for key and value: appended whole, or taken apart, appended to and put together again."""
    build = builder_with_hidden_states()
    past = build.input("past", [2, "B", HEADS, "P", SIZE])
    news = [build.heads(), build.heads()]
    zero = build.ints(0)
    if stacks:
        new = build.op("Concat", *(build.op("Unsqueeze", heads, zero) for heads in news), axis=0)
        whole = build.op("Concat", past, new, axis=3)
        parts = [build.op("Gather", whole, build.constant(numpy.int64(place)), axis=0) for place in (0, 1)]
    else:
        halves = build.op("Split", past, build.ints(1, 1), outputs=2, axis=0)
        olds = [build.op("Squeeze", half, zero) for half in halves]
        parts = [build.op("Concat", old, new, axis=2) for old, new in zip(olds, news, strict=True)]
        whole = build.op("Concat", *(build.op("Unsqueeze", part, zero) for part in parts), axis=0)
    out = build.attend(*parts)
    build.present(whole, "present", [2, "B", HEADS, "T", SIZE])
    build.result(out)
    return build.model()


def all_layers() -> OnnxModel:
    """The keys of all layers in one tensor, and the values: [layers, batch, heads, sequence, size]."""
    build = builder_with_hidden_states()
    pasts = build.pasts([LAYERS, "B", HEADS, "P", SIZE])
    kept: list[list[str]] = [[], []]
    outs = []
    for layer in range(LAYERS):
        parts = []
        for past, mine in zip(pasts, kept, strict=True):
            old = build.op("Gather", past, build.constant(numpy.int64(layer)), axis=0)
            parts.append(build.op("Concat", old, build.heads(), axis=2))
            mine.append(build.op("Unsqueeze", parts[-1], build.ints(0)))
        outs.append(build.attend(*parts))
    for role, mine in zip(("key", "value"), kept, strict=True):
        build.present(build.op("Concat", *mine, axis=0), f"present_{role}", [LAYERS, "B", HEADS, "T", SIZE])
    build.result(*outs)
    return build.model()


def all_caches() -> OnnxModel:
    """Keys and values of all layers in one tensor: [layers, 2, batch, heads, sequence, size]."""
    build = builder_with_hidden_states()
    past = build.input("past", [LAYERS, 2, "B", HEADS, "P", SIZE])
    layers, outs = [], []
    for layer in range(LAYERS):
        own = build.op("Gather", past, build.constant(numpy.int64(layer)), axis=0)
        olds = [build.op("Gather", own, build.constant(numpy.int64(part)), axis=0) for part in (0, 1)]
        parts = [build.op("Concat", old, build.heads(), axis=2) for old in olds]
        pair = build.op("Concat", *(build.op("Unsqueeze", part, build.ints(0)) for part in parts), axis=0)
        layers.append(build.op("Unsqueeze", pair, build.ints(0)))
        outs.append(build.attend(*parts))
    build.present(build.op("Concat", *layers, axis=0), "present", [LAYERS, 2, "B", HEADS, "T", SIZE])
    build.result(*outs)
    return build.model()


def shared() -> OnnxModel:
    """Two layers attend over the same positions."""
    build = builder_with_hidden_states()
    whole = [build.op("Concat", past, build.heads(), axis=2) for past in build.pasts(["B", HEADS, "P", SIZE])]
    outs = [build.attend(*whole), build.attend(*whole)]
    build.presents(*whole, ["B", HEADS, "T", SIZE])
    build.result(*outs)
    return build.model()


def window(cuts: str) -> OnnxModel:
    """A state of the last positions alone: cut ``"after"`` the new ones are appended, or ``"before"``."""
    build = builder_with_hidden_states()
    read, kept = [], []
    for past in build.pasts(["B", HEADS, WINDOW, SIZE]):
        if cuts == "before":
            past = build.op("Slice", past, *map(build.ints, (1, 2**31, 2)))
        read.append(build.op("Concat", past, build.heads(), axis=2))
        kept.append(read[-1])
        if cuts == "after":
            kept[-1] = build.op("Slice", read[-1], *map(build.ints, (-WINDOW, 2**31, 2)))
    out = build.attend(*read)
    build.presents(*kept, ["B", HEADS, WINDOW, SIZE])
    build.result(out)
    return build.model()


def in_place(how: str) -> OnnxModel:
    """A capacity of positions, of which a step writes some: ``where`` says which."""
    build = builder_with_hidden_states()
    where, mask = build.input("where", ["N"], "i64"), build.input("mask", ["B", 1, "N", ROOM])
    whole = [_written(build, how, past, where) for past in build.pasts(["B", HEADS, ROOM, SIZE])]
    out = build.attend(*whole, mask=mask)
    build.presents(*whole, ["B", HEADS, ROOM, SIZE])
    build.result(out)
    return build.model()


def _written(build: GraphBuilder, how: str, past: str, where: str) -> str:
    new = build.heads()
    if how == "ScatterElements":
        column = build.op("Unsqueeze", where, build.ints(0, 1, 3))
        return str(build.op("ScatterElements", past, build.op("Expand", column, build.op("Shape", new)), new, axis=2))
    if how == "ScatterND":
        # index_copy_ along the sequence axis, as torch exports it
        front = build.op("Transpose", past, perm=[2, 0, 1, 3])
        rows = build.op("Transpose", new, perm=[2, 0, 1, 3])
        written = build.op("ScatterND", front, build.op("Unsqueeze", where, build.ints(1)), rows)
        return str(build.op("Transpose", written, perm=[1, 2, 0, 3]))
    # ScatterND by (batch, head, position)
    grid = build.op("Shape", new, start=0, end=3)
    places = []
    for axis in range(3):
        if axis == 2:
            along = where
        else:
            size = build.op("Squeeze", build.op("Shape", new, start=axis, end=axis + 1))
            along = build.op("Range", build.constant(numpy.int64(0)), size, build.constant(numpy.int64(1)))
        others = build.ints(*(other for other in range(3) if other != axis))
        spread = build.op("Expand", build.op("Unsqueeze", along, others), grid)
        places.append(build.op("Unsqueeze", spread, build.ints(-1)))
    return str(build.op("ScatterND", past, build.op("Concat", *places, axis=-1), new))


def quantized(how: str) -> OnnxModel:
    """i8 caches with ``"constant"`` scales, with ``"carried"`` ones, or with zero points too: ``"arithmetic"``."""
    build = builder_with_hidden_states()
    read, kept = [], []
    for role in ("key", "value"):
        past = build.input(f"past_{role}", ["B", HEADS, "P", SIZE], "i8")
        new = build.heads()
        step = build.constant(numpy.float32(0.1))
        zero = build.constant(numpy.int8(0))
        whole = build.op("Concat", past, build.op("QuantizeLinear", new, step, zero), axis=2)
        kept.append((f"present_{role}", whole, "i8", SIZE))
        if how == "constant":
            read.append(build.op("DequantizeLinear", whole, step, zero))
            continue
        scale = build.op("Concat", build.input(f"scale_{role}", ["B", HEADS, "P", 1]), _peak(build, new), axis=2)
        kept.append((f"next_scale_{role}", scale, "f32", 1))
        if how == "carried":
            wide = build.op("Expand", scale, build.op("Shape", whole))
            read.append(build.op("Mul", build.op("Cast", whole, to=1), wide))
            continue
        old = build.input(f"zero_{role}", ["B", HEADS, "P", 1], "i8")
        peak = build.op("Cast", _peak(build, new), to=3)
        zeros = build.op("Concat", old, peak, axis=2)
        kept.append((f"next_zero_{role}", zeros, "i8", 1))
        shifted = build.op("Sub", build.op("Cast", whole, to=1), build.op("Cast", zeros, to=1))
        read.append(build.op("Mul", shifted, scale))
    out = build.attend(*read)
    for name, value, kind, size in kept:
        build.present(value, name, ["B", HEADS, "T", size], kind)
    build.result(out)
    return build.model()


def _peak(build: GraphBuilder, value: str) -> str:
    return str(build.op("ReduceMax", value, build.ints(3), keepdims=1))


def requantized() -> OnnxModel:
    """The whole cache becomes numbers, is appended to, and is quantized again."""
    build = builder_with_hidden_states()
    read, kept = [], []
    for past in build.pasts(["B", HEADS, "P", SIZE], "i8"):
        parameters = build.constant(numpy.float32(0.1)), build.constant(numpy.int8(0))
        read.append(build.op("Concat", build.op("DequantizeLinear", past, *parameters), build.heads(), axis=2))
        kept.append(build.op("QuantizeLinear", read[-1], *parameters))
    out = build.attend(*read)
    build.presents(*kept, ["B", HEADS, "T", SIZE], "i8")
    build.result(out)
    return build.model()


def unread() -> OnnxModel:
    """A history that grows and that no attention reads."""
    build = builder_with_hidden_states()
    past = build.input("past", ["P", "B", SIZE])
    new = build.op("Transpose", build.op("MatMul", "hidden", build.weight(HIDDEN, SIZE)), perm=[1, 0, 2])
    whole = build.op("Concat", past, new, axis=0)
    build.output(build.op("ReduceMean", whole, build.ints(0)), "logits", [1, "B", SIZE])
    build.present(whole, "present", ["T", "B", SIZE])
    return build.model()
