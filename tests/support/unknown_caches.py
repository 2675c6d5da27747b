"""A decoder whose history no attention reads: what it is cannot be told, and whoever knows has to say it."""

from __future__ import annotations

from graphpass.dialects.onnx.model import OnnxModel
from support.graph_builder import GraphBuilder

VOCABULARY, SIZE = 7, 6


def decoder_with_unknown_cache(axis: int = 1, keep: str = "all", names: tuple[str, ...] = ("past",)) -> OnnxModel:
    """Logits are made of each token and of the mean of all hidden states so far, which pasts hold along ``axis``.

    Args:
        axis: 0 or 1.
        keep: ``all`` that were and are; ``same`` a mean, which keeps its size; ``chosen`` an input says how many.
        names: Of the pasts, which all hold the same. The CPU plugin (2026.4.1) fails on a model with a single variable
            that no fused attention reads.
    """
    build = GraphBuilder()
    build.input("input_ids", ["B", "N"], "i64")
    hidden = build.op("Gather", build.weight(VOCABULARY, SIZE), "input_ids", axis=0)
    new = build.op("Transpose", hidden, perm=[1, 0, 2]) if axis == 0 else hidden
    shape = ["P", "B", SIZE] if axis == 0 else ["B", "P", SIZE]
    presents, total = [], hidden
    for name in names:
        build.input(name, shape)
        if keep == "same":
            whole = build.op("Add", name, build.op("ReduceMean", new, build.ints(axis), keepdims=1))
        else:
            whole = build.op("Concat", name, new, axis=axis)
        if keep == "chosen":
            build.input("keep", [1], "i64")
            whole = build.op("Slice", whole, build.ints(0), "keep", build.ints(axis))
        mean = build.op("ReduceMean", whole, build.ints(axis), keepdims=1)
        mean = build.op("Transpose", mean, perm=[1, 0, 2]) if axis == 0 else mean
        total = build.op("Add", total, mean)
        presents.append(whole)
    logits = build.op("MatMul", total, build.weight(SIZE, VOCABULARY))
    build.output(logits, "logits", ["B", "N", VOCABULARY])
    for name, whole in zip(names, presents, strict=True):
        build.present(whole, name.replace("past", "present"), ["T" if size == "P" else size for size in shape])
    return build.model()
