"""Graphs around operators that hold a cache inside."""

from __future__ import annotations

import numpy

from graphpass.dialects.onnx.model import OnnxModel
from support.graph_builder import HEADS, HIDDEN, NEW, PAST, ROOM, SIZE, GraphBuilder, builder_with_hidden_states

MS = "com.microsoft"
WIDTH = HEADS * SIZE


def attention(opset: int) -> OnnxModel:
    """ONNX's own Attention with past and present."""
    build = builder_with_hidden_states(opset=opset)
    past = build.pasts(["B", HEADS, "P", SIZE])
    out, key, value = build.op("Attention", build.heads(), build.heads(), build.heads(), "", *past, outputs=3)
    build.presents(key, value, ["B", HEADS, "T", SIZE])
    build.result(out)
    return build.model()


def external(opset: int = 24) -> OnnxModel:
    """Attention over caches that TensorScatter writes in place."""
    build = builder_with_hidden_states(opset=opset)
    where, seen = build.input("where", ["B"], "i64"), build.input("seen", ["B"], "i64")
    whole = [build.op("TensorScatter", past, build.heads(), where) for past in build.pasts(["B", HEADS, ROOM, SIZE])]
    out = build.op("Attention", build.heads(), *whole, "", "", "", seen)
    build.presents(*whole, ["B", HEADS, ROOM, SIZE])
    build.result(out)
    return build.model()


def flat(build: GraphBuilder) -> str:
    return str(build.op("MatMul", "hidden", build.weight(HIDDEN, WIDTH)))


def grouped_query(window: int = -1) -> OnnxModel:
    """com.microsoft GroupQueryAttention."""
    build = builder_with_hidden_states(contrib=True)
    past = build.pasts(["B", HEADS, "P", SIZE])
    lengths = build.constant(numpy.full(2, PAST + NEW - 1, numpy.int32)), build.constant(numpy.int32(PAST + NEW))
    out, key, value = build.op(
        "GroupQueryAttention",
        *(flat(build) for _ in range(3)),
        *past,
        *lengths,
        outputs=3,
        domain=MS,
        num_heads=HEADS,
        kv_num_heads=HEADS,
        local_window_size=window,
    )
    build.presents(key, value, ["B", HEADS, "T", SIZE])
    build.output(out, "logits", ["B", "N", WIDTH])
    return build.model()


def multi_head() -> OnnxModel:
    """com.microsoft MultiHeadAttention with past, and over a cross-attention cache."""
    build = builder_with_hidden_states(contrib=True)
    past = build.pasts(["B", HEADS, "P", SIZE])
    crossed = [build.input(f"cross_{name}", ["B", HEADS, 6, SIZE]) for name in ("key", "value")]
    out, key, value = build.op(
        "MultiHeadAttention",
        *(flat(build) for _ in range(3)),
        *("", "", ""),
        *past,
        outputs=3,
        domain=MS,
        num_heads=HEADS,
    )
    query = build.op("MatMul", out, build.weight(WIDTH, WIDTH))
    out = build.op("MultiHeadAttention", query, *crossed, domain=MS, num_heads=HEADS)
    build.presents(key, value, ["B", HEADS, "T", SIZE])
    build.output(out, "logits", ["B", "N", WIDTH])
    return build.model()


def linear(domain: str = MS, opset: int = 21, window: int = 0) -> OnnxModel:
    """LinearAttention and CausalConvWithState, of com.microsoft and of ONNX itself."""
    build = builder_with_hidden_states(opset=opset, contrib=domain == MS)
    lead = [window] if window else []
    kept = {"state_window": window} if window else {}
    conv = build.input("past_conv", [*lead, "B", WIDTH, 3])
    state = build.input("past_state", [*lead, "B", HEADS, SIZE, SIZE])
    columns = build.op("Transpose", flat(build), perm=[0, 2, 1])
    mixed, next_conv = build.op(
        "CausalConvWithState", columns, build.weight(WIDTH, 1, 4), "", conv, outputs=2, domain=domain, **kept
    )
    rows = build.op("Transpose", mixed, perm=[0, 2, 1])
    out, next_state = build.op(
        "LinearAttention",
        rows,
        flat(build),
        flat(build),
        state,
        outputs=2,
        domain=domain,
        update_rule="linear",
        q_num_heads=HEADS,
        kv_num_heads=HEADS,
        **kept,
    )
    build.present(next_conv, "present_conv", [*lead, "B", WIDTH, 3])
    build.present(next_state, "present_state", [*lead, "B", HEADS, SIZE, SIZE])
    build.output(out, "logits", ["B", "N", WIDTH])
    return build.model()


def recurrent(kind: str, layers: int = 1) -> OnnxModel:
    """LSTM or GRU layers; the states of several stand in one tensor."""
    build = builder_with_hidden_states()
    gates = {"LSTM": 4, "GRU": 3}[kind]
    names = ("h", "c") if kind == "LSTM" else ("h",)
    pasts = [build.input(f"past_{name}", [layers, "B", SIZE]) for name in names]
    rows = build.op("Transpose", "hidden", perm=[1, 0, 2])
    states: list[list[str]] = [[] for _ in names]
    width = HIDDEN
    for layer in range(layers):
        ends = build.ints(layer), build.ints(layer + 1), build.ints(0)
        mine = pasts if layers == 1 else [build.op("Slice", past, *ends) for past in pasts]
        weights = build.weight(1, gates * SIZE, width), build.weight(1, gates * SIZE, SIZE)
        out, *after = build.op(kind, rows, *weights, "", "", *mine, outputs=1 + len(names), hidden_size=SIZE)
        rows = build.op("Squeeze", out, build.ints(1))
        width = SIZE
        for kept, state in zip(states, after, strict=True):
            kept.append(state)
    for name, kept in zip(names, states, strict=True):
        whole = kept[0] if layers == 1 else build.op("Concat", *kept, axis=0)
        build.present(whole, f"present_{name}", [layers, "B", SIZE])
    build.output(rows, "logits", ["N", "B", SIZE])
    return build.model()
