"""Replace operators without rules for shape inference by operators with equal shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import onnx
from onnx import helper

from graphpass.ir.operators import COMPRESSED_PRODUCTS

#: ONNX operators whose output has the shape of the first input.
_KEEPS_SHAPE = frozenset({"Cast", "Identity", "ScatterElements", "ScatterND"})

#: First opset in which inference of Reshape propagates the elements of a computed shape.
_PROPAGATING = 14

#: First opset in which all operators of proxies read starts and sizes as inputs.
_WITH_INPUTS = 11

#: Rank of a cache with an axis of heads.
_RANK = 4

#: Suffix of outputs of loops that have proxies.
_LOOPED = "/looped"


def shape_proxies(
    nodes: Iterable[onnx.NodeProto], opset: int, ranks: Mapping[str, int] | None = None
) -> list[onnx.NodeProto]:
    """Replace nodes without shape inference in onnx by proxies with equal shapes, but other values.

    Args:
        nodes: Nodes in topological order.
        opset: Imported version of the default operator set; before 11 only Reshape and outputs of loops get proxies.
        ranks: Ranks of the model's inputs, by name.

    Returns:
        The nodes with their proxies in place. Outputs keep their names.
    """
    proxies: list[onnx.NodeProto] = []
    computed: set[str] = set()
    for node in nodes:
        if opset < _PROPAGATING:
            computed |= set(node.output) if node.op_type != "Constant" else set()
            if node.op_type == "Reshape" and not node.domain and node.input[1] in computed:
                proxies += _reshaped(node)
                continue
        if node.op_type == "Loop" and not node.domain and (kept := kept_outputs(node)):
            proxies += _looped(node, kept)
            continue
        make = _PROXIES.get(node.op_type) if opset >= _WITH_INPUTS else None
        if make is _multi_head and (ranks or {}).get("".join(node.input[2:3])) == _RANK:
            make = _stored_heads
        known = not node.domain and onnx.defs.has(node.op_type, opset, "")
        if make is None or known or not _REQUIRED.get(node.op_type, frozenset()) <= _attributes(node).keys():
            proxies.append(node)
        else:
            proxies += make(node)
    return proxies


def kept_outputs(loop: onnx.NodeProto) -> dict[int, int]:
    """Return outputs of a Loop with constant shape, each with its initial value's input.

    Shape inference leaves carried tensors without shape, because iterations may change it. Scripted loops over tokens
    write each result into a carried tensor.
    """
    body: onnx.GraphProto = _attributes(loop)["body"]
    producers = {name: node for node in body.node for name in node.output}
    kept = {}
    for port, info in enumerate(body.input[2:]):
        name = body.output[1 + port].name
        while (producer := producers.get(name)) is not None and producer.op_type in _KEEPS_SHAPE:
            name = producer.input[0]
        if name == info.name and port < len(loop.output) and loop.output[port] and loop.input[2 + port]:
            kept[port] = 2 + port
    return kept


def outputs_of(node: onnx.NodeProto) -> tuple[str, ...]:
    """Return the original names of outputs, which `shape_proxies` may have changed."""
    return tuple(name.removesuffix(_LOOPED) for name in node.output)


def _looped(loop: onnx.NodeProto, kept: dict[int, int]) -> list[onnx.NodeProto]:
    renamed = onnx.NodeProto()
    renamed.CopyFrom(loop)
    for port in kept:
        renamed.output[port] += _LOOPED
    return [renamed, *(helper.make_node("Identity", [loop.input[kept[port]]], [loop.output[port]]) for port in kept)]


def _same_as_first(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    return [helper.make_node("Identity", [node.input[0]], [node.output[0]])]


def _skip(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    # The norm and the sum have the shape of the input; mean and deviation have no users.
    return [
        helper.make_node("Identity", [node.input[0]], [name]) for name in (node.output[0], *node.output[3:4]) if name
    ]


def _compressed_product(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Return proxies of ``[.., N]`` from ``[.., K]``: one column, repeated N times."""
    name, made = node.output[0], _Made(node)
    column = made.op("Slice", node.input[0], *(made.integers([number]) for number in (0, 1, -1)))
    made.op("Expand", column, made.integers([_attributes(node)["N"]]), output=name)
    return made.nodes


def _fused_product(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    attributes = _attributes(node)
    if attributes.get("transBatchA") or attributes.get("transBatchB"):
        return [node]
    operands = ("ki" if attributes.get("transA") else "ik", "jk" if attributes.get("transB") else "kj")
    equation = "...{},...{}->...ij".format(*operands)
    return [helper.make_node("Einsum", node.input, node.output, equation=equation)]


def _gathered_blocks(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Return proxies of ``[.., hidden]`` from scales ``[words, hidden / block]``; none for other axes."""
    attributes, made = _attributes(node), _Made(node)
    rank_two = attributes.get("gather_axis", 0) == 0 and attributes.get("quantize_axis", 1) in {1, -1}
    if not rank_two or not attributes.get("block_size", 128):
        return []
    rows = made.op("Gather", node.input[2], node.input[1])
    made.op("Concat", *[rows] * attributes.get("block_size", 128), axis=-1, output=node.output[0])
    return made.nodes


def _quantize(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Return a proxy of the first input's shape in the zero point's type, or u8."""
    if len(node.input) < 3 or not node.input[2]:
        return [helper.make_node("Cast", [node.input[0]], [node.output[0]], to=onnx.TensorProto.UINT8)]
    return _typed_as(node, node.input[2])


def _typed_as(node: onnx.NodeProto, example: str) -> list[onnx.NodeProto]:
    made = _Made(node)
    made.like(node.input[0], example, node.output[0])
    return made.nodes


def _reshaped(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Return a proxy of a Reshape whose rank is the length of its computed shape."""
    made = _Made(node)
    # Inference propagates elements of the shape through opset 13's operators, but not through Abs. -1 is not a size.
    made.like(made.op("ConstantOfShape", made.op("Abs", node.input[1])), node.input[0], node.output[0])
    return made.nodes


def _grouped(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    attributes, made = _attributes(node), _Made(node)
    inputs = [*node.input, "", "", "", "", ""]
    heads, kv_heads = attributes["num_heads"], attributes["kv_num_heads"]
    outputs = [*node.output, "", ""]
    if inputs[1]:
        made.op("Identity", inputs[0], output=outputs[0])
        split = [made.op("Reshape", name, made.integers([0, 0, kv_heads, -1])) for name in inputs[1:3]]
    else:
        whole = made.op("Reshape", inputs[0], made.integers([0, 0, heads + 2 * kv_heads, -1]))
        bounds = ((0, heads), (heads, heads + kv_heads), (heads + kv_heads, heads + 2 * kv_heads))
        query, *split = (
            made.op("Slice", whole, *(made.integers([number]) for number in (*bound, 2))) for bound in bounds
        )
        made.op("Reshape", query, made.integers([0, 0, -1]), output=outputs[0])
    for part, past, present in zip(split, inputs[3:5], outputs[1:3], strict=True):
        if present:
            moved = made.op("Transpose", part, perm=[0, 2, 1, 3])
            if attributes.get("k_quant_type", b"NONE") != b"NONE":
                moved = _quantized(made, moved, attributes.get("kv_cache_bit_width", 8))
            made.op("Concat", *([past] if past else []), moved, output=present, axis=2)
    return made.nodes


def _projected(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Return proxies of ``[batch, length, width of values]`` and ``[2, batch, heads, keys, size]``."""
    attributes, made, outputs = _attributes(node), _Made(node), [*node.output, ""]
    past = "".join(node.input[4:5])
    if node.op_type == "QAttention":
        past = "".join(node.input[8:9])
        whole = made.op("Cast", made.op("MatMulInteger", *node.input[:2]), to=onnx.TensorProto.FLOAT)
    else:
        whole = made.op("MatMul", *node.input[:2])
    if sizes := attributes.get("qkv_hidden_sizes"):
        made.op("Slice", whole, *(made.integers([number]) for number in (0, sizes[2], 2)), output=outputs[0])
        return made.nodes
    heads = made.op("Reshape", whole, made.integers([0, 0, 3, attributes["num_heads"], -1]))
    value = made.op("Slice", heads, *(made.integers([number]) for number in (0, 1, 2)))
    made.op("Reshape", value, made.integers([0, 0, -1]), output=outputs[0])
    if outputs[1]:
        both = made.op("Slice", heads, *(made.integers([number]) for number in (0, 2, 2)))
        moved = made.op("Transpose", both, perm=[2, 0, 3, 1, 4])
        made.op("Concat", *([past] if past else []), moved, output=outputs[1], axis=3)
    return made.nodes


def _embedded(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Return proxies of the norm and the sum of embeddings, ``[batch, length, hidden]``."""
    names = [name for name in (node.output[0], *node.output[2:3]) if name]
    return [helper.make_node("Gather", [node.input[2], node.input[0]], [name]) for name in names]


def _stored_heads(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Return a proxy of MultiHeadAttention whose key and value are caches ``[batch, heads, keys, size]``."""
    made = _Made(node)
    moved = made.op("Transpose", node.input[2], perm=[0, 2, 1, 3])
    merged = made.op("Reshape", moved, made.integers([0, 0, -1]))
    made.op("Einsum", node.input[0], merged, equation="bqc,bkv->bqv", output=node.output[0])
    return made.nodes


def _multi_head(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Return proxies of ``[batch, queries, width of values]`` and ``[batch, heads, keys, size]``.

    For operands of other ranks than 3, Einsum leaves the shape unknown.
    """
    made, inputs, outputs = _Made(node), [*node.input, *[""] * 8], [*node.output, "", ""]
    if not (inputs[1] and inputs[2]):
        return [node]
    made.op("Einsum", *inputs[:3], equation="bqc,bkc,bkv->bqv", output=outputs[0])
    for new, past, present in zip(inputs[1:3], inputs[6:8], outputs[1:3], strict=True):
        if present:
            merged = made.op("Einsum", new, equation="bkc->bkc")
            split = made.op("Reshape", merged, made.integers([0, 0, _attributes(node)["num_heads"], -1]))
            moved = made.op("Transpose", split, perm=[0, 2, 1, 3])
            made.op("Concat", *([past] if past else []), moved, output=present, axis=2)
    return made.nodes


def _quantized(made: _Made, heads: str, bits: int) -> str:
    """Return the name of quantized new heads; two values of 4 bits share a byte."""
    if bits == 4:
        heads = made.op("Slice", heads, *(made.integers([number]) for number in (0, 2**31 - 1, -1, 2)))
    return made.op("Cast", heads, to=onnx.TensorProto.UINT8 if bits == 4 else onnx.TensorProto.INT8)


def _linear_attention(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Return proxies of ``max(q_num_heads, kv_num_heads)`` heads of the value's size."""
    attributes, made = _attributes(node), _Made(node)
    heads = made.op("Reshape", node.input[2], made.integers([0, 0, attributes["kv_num_heads"], -1]))
    first = made.op("Slice", heads, *(made.integers([number]) for number in (0, 1, 2)))
    count = max(attributes["q_num_heads"], attributes["kv_num_heads"])
    copies = made.op("Expand", first, made.integers([1, 1, count, 1]))
    made.op("Reshape", copies, made.integers([0, 0, -1]), output=node.output[0])
    return made.nodes + _same_state(node)


def _same_state(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    if len(node.input) < 4 or not node.input[3] or len(node.output) < 2 or not node.output[1]:
        return []
    return [helper.make_node("Identity", [node.input[3]], [node.output[1]])]


class _Made:
    def __init__(self, node: onnx.NodeProto) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self._prefix = next(name for name in node.output if name)

    def op(self, op: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        name = output or f"{self._prefix}/proxy_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def integers(self, values: list[int]) -> str:
        # Before opset 12, Constant has no value_ints.
        return self.op("Constant", value=helper.make_tensor("", onnx.TensorProto.INT64, [len(values)], values))

    def like(self, shape: str, example: str, output: str) -> None:
        """Write a tensor of the shape of one tensor, and of the type of another."""
        flat = self.op("Reshape", example, self.integers([-1]))
        scalar = self.op("Squeeze", self.op("Gather", flat, self.integers([0])))
        condition = self.op("Cast", shape, to=onnx.TensorProto.BOOL)
        self.op("Where", condition, scalar, scalar, output=output)


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


_PROXIES: dict[str, Callable[[onnx.NodeProto], list[onnx.NodeProto]]] = {
    **dict.fromkeys(("Attention", "QAttention"), _projected),
    "CausalConvWithState": lambda node: _same_as_first(node) + _same_state(node),
    "DequantizeLinear": lambda node: _typed_as(node, node.input[1]),
    "EmbedLayerNormalization": _embedded,
    "FastGelu": _same_as_first,
    "FusedMatMul": _fused_product,
    "GatherBlockQuantized": _gathered_blocks,
    "GroupQueryAttention": _grouped,
    "LinearAttention": _linear_attention,
    **dict.fromkeys(COMPRESSED_PRODUCTS, _compressed_product),
    "MoE": _same_as_first,
    "MultiHeadAttention": _multi_head,
    "QMoE": _same_as_first,
    "QuantizeLinear": _quantize,
    "QuickGelu": _same_as_first,
    "RotaryEmbedding": _same_as_first,
    "SimplifiedLayerNormalization": _same_as_first,
    "SkipLayerNormalization": _skip,
    "SkipSimplifiedLayerNormalization": _skip,
}

#: Attributes that shape inference requires; only the checker reports missing ones.
_REQUIRED = {
    **dict.fromkeys(("Attention", "QAttention"), frozenset({"num_heads"})),
    "GroupQueryAttention": frozenset({"num_heads", "kv_num_heads"}),
    "LinearAttention": frozenset({"q_num_heads", "kv_num_heads"}),
    **dict.fromkeys(COMPRESSED_PRODUCTS, frozenset({"N"})),
    "MultiHeadAttention": frozenset({"num_heads"}),
}
