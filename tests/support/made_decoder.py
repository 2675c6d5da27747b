"""A decoder of any size with random weights, as ONNX: what benchmarks measure without an exporter at hand."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from graphpass.dialects.onnx.model import OnnxModel


def made_decoder(
    layers: int = 8,
    heads: int = 16,
    kv_heads: int = 4,
    head_dim: int = 64,
    vocabulary: int = 512,
    window: int | None = None,
) -> OnnxModel:
    """Grouped-query attention with rotary embedding, a causal mask and a gateless MLP, as exporters write them.

    Inputs are ``input_ids``, ``attention_mask``, ``position_ids`` and ``past_key_values.N.key|value``.

    Args:
        layers: How many layers.
        heads: Query heads.
        kv_heads: Heads of the caches.
        head_dim: Size of a head.
        vocabulary: How many tokens there are.
        window: How many entries a query sees; all where not given.
    """
    writer = _Writer(np.random.default_rng(0))
    hidden = heads * head_dim
    ids, mask = "input_ids", "attention_mask"
    writer.weights("embeddings", (vocabulary, hidden), scale=1.0)
    x = writer.node("Gather", "embeddings", ids, axis=0)
    angles = _angles(writer, head_dim)
    visible = _visible(writer, mask, "past_key_values.0.key", ids, window)
    inputs = [helper.make_tensor_value_info(ids, TensorProto.INT64, ["batch", "length"])]
    inputs += [helper.make_tensor_value_info(mask, TensorProto.INT64, ["batch", "total"])]
    inputs += [helper.make_tensor_value_info("position_ids", TensorProto.INT64, ["batch", "length"])]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "length", vocabulary])]
    for layer in range(layers):
        x = _layer(writer, layer, x, angles, visible, (heads, kv_heads, head_dim))
        for role in ("key", "value"):
            shape = ["batch", kv_heads, "past", head_dim]
            inputs.append(helper.make_tensor_value_info(f"past_key_values.{layer}.{role}", TensorProto.FLOAT, shape))
            shape = ["batch", kv_heads, "total", head_dim]
            outputs.append(helper.make_tensor_value_info(f"present.{layer}.{role}", TensorProto.FLOAT, shape))
    writer.weights("head", (hidden, vocabulary))
    writer.node("MatMul", _normed(writer, x), "head", output="logits")
    graph = helper.make_graph(writer.nodes, "made", inputs, outputs, writer.initializers)
    return OnnxModel(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))


def _layer(
    writer: _Writer, layer: int, x: str, angles: tuple[str, str], visible: str, sizes: tuple[int, int, int]
) -> str:
    heads, kv_heads, head_dim = sizes
    hidden = heads * head_dim
    normed = _normed(writer, x)
    query = _rotated(writer, _heads(writer, normed, f"q{layer}", hidden, heads, head_dim), angles, head_dim)
    key = _rotated(writer, _heads(writer, normed, f"k{layer}", hidden, kv_heads, head_dim), angles, head_dim)
    value = _heads(writer, normed, f"v{layer}", hidden, kv_heads, head_dim)
    both = []
    for role, new in (("key", key), ("value", value)):
        past = f"past_key_values.{layer}.{role}"
        present = writer.node("Concat", past, new, axis=2, output=f"present.{layer}.{role}")
        wide = writer.node("Unsqueeze", present, writer.ints(2))
        copies = writer.node("Expand", wide, _sizes(writer, present, kv_heads, heads // kv_heads, head_dim))
        both.append(writer.node("Reshape", copies, _sizes(writer, present, heads, None, head_dim)))
    scores = writer.node("MatMul", query, writer.node("Transpose", both[0], perm=[0, 1, 3, 2]))
    scaled = writer.node("Mul", scores, writer.floats(head_dim**-0.5))
    weights = writer.node("Softmax", writer.node("Add", scaled, visible), axis=-1)
    joined = writer.node("Transpose", writer.node("MatMul", weights, both[1]), perm=[0, 2, 1, 3])
    flat = writer.node("Reshape", joined, writer.ints(0, 0, hidden))
    writer.weights(f"o{layer}", (hidden, hidden))
    x = writer.node("Add", x, writer.node("MatMul", flat, f"o{layer}"))
    writer.weights(f"up{layer}", (hidden, 2 * hidden))
    writer.weights(f"down{layer}", (2 * hidden, hidden))
    up = writer.node("Relu", writer.node("MatMul", _normed(writer, x), f"up{layer}"))
    return writer.node("Add", x, writer.node("MatMul", up, f"down{layer}"))


def _sizes(writer: _Writer, cache: str, heads: int, copies: int | None, head_dim: int) -> str:
    """``[batch, heads, (copies,) sequence, head_dim]``."""
    shape = writer.node("Shape", cache)
    batch, length = (writer.node("Gather", shape, writer.ints(axis), axis=0) for axis in (0, 2))
    middle = [writer.ints(heads)] if copies is None else [writer.ints(heads), writer.ints(copies)]
    return writer.node("Concat", batch, *middle, length, writer.ints(head_dim), axis=0)


def _heads(writer: _Writer, x: str, name: str, hidden: int, heads: int, head_dim: int) -> str:
    writer.weights(name, (hidden, heads * head_dim))
    split = writer.node("Reshape", writer.node("MatMul", x, name), writer.ints(0, 0, heads, head_dim))
    return writer.node("Transpose", split, perm=[0, 2, 1, 3])


def _normed(writer: _Writer, x: str) -> str:
    square = writer.node("ReduceMean", writer.node("Mul", x, x), axes=[-1])
    return writer.node("Div", x, writer.node("Sqrt", writer.node("Add", square, writer.floats(1e-6))))


def _angles(writer: _Writer, head_dim: int) -> tuple[str, str]:
    frequencies = 10000.0 ** -(np.arange(0, head_dim, 2, dtype=np.float32) / head_dim)
    positions = writer.node("Cast", writer.node("Unsqueeze", "position_ids", writer.ints(1, 3)), to=TensorProto.FLOAT)
    turns = writer.node("Mul", positions, writer.constant(np.concatenate([frequencies, frequencies])))
    return writer.node("Cos", turns), writer.node("Sin", turns)


def _rotated(writer: _Writer, x: str, angles: tuple[str, str], head_dim: int) -> str:
    half = head_dim // 2
    first = writer.node("Slice", x, writer.ints(0), writer.ints(half), writer.ints(3))
    second = writer.node("Slice", x, writer.ints(half), writer.ints(head_dim), writer.ints(3))
    turned = writer.node("Concat", writer.node("Neg", second), first, axis=3)
    return writer.node("Add", writer.node("Mul", x, angles[0]), writer.node("Mul", turned, angles[1]))


def _visible(writer: _Writer, mask: str, past: str, ids: str, window: int | None) -> str:
    """What is added to the scores: 0, or the lowest number behind the query and where the mask says so."""
    one, zero = writer.constant(np.array(1, np.int64)), writer.constant(np.array(0, np.int64))
    start = writer.node("Gather", writer.node("Shape", past), writer.constant(np.array(2)), axis=0)
    length = writer.node("Gather", writer.node("Shape", ids), one, axis=0)
    stop = writer.node("Add", start, length)
    queries = writer.node("Unsqueeze", writer.node("Range", start, stop, one), writer.ints(1))
    keys = writer.node("Unsqueeze", writer.node("Range", zero, stop, one), writer.ints(0))
    seen = writer.node("LessOrEqual", keys, queries)
    if window is not None:
        first = writer.node("Sub", queries, writer.constant(np.array(window, np.int64)))
        seen = writer.node("And", seen, writer.node("Greater", keys, first))
    counts = writer.node("Cast", writer.node("Unsqueeze", mask, writer.ints(1, 2)), to=TensorProto.BOOL)
    both = writer.node("And", writer.node("Unsqueeze", seen, writer.ints(0, 1)), counts)
    return writer.node("Where", both, writer.floats(0.0), writer.floats(float(np.finfo(np.float32).min)))


class _Writer:
    """Collects nodes and weights."""

    def __init__(self, random: np.random.Generator) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self._random = random

    def node(self, op: str, *inputs: str, output: str | None = None, **attributes: object) -> str:
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output or name], name, **attributes))
        return output or name

    def constant(self, value: np.ndarray) -> str:
        name = f"constant_{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(value, name))
        return name

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def floats(self, value: float) -> str:
        return self.constant(np.array(value, np.float32))

    def weights(self, name: str, shape: tuple[int, int], scale: float | None = None) -> None:
        spread = shape[0] ** -0.5 if scale is None else scale
        values = self._random.standard_normal(shape, np.float32) * np.float32(spread)
        self.initializers.append(numpy_helper.from_array(values, name))
