"""What operators say of the attention that they compute, one attribute or input at a time."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy
import openvino
import pytest
from openvino import opset13 as ops
from support.graph_builder import (
    BATCH,
    HEADS,
    HIDDEN,
    PAST,
    SIZE,
    GraphBuilder,
    builder_with_hidden_states,
    random_step,
)
from support.operator_forms import MS, WIDTH, grouped_query

import graphpass
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.ir.cache import AttentionBlock

HALF = SIZE**-0.5


def told(scale: float) -> float:
    return float(f"{scale:.6g}")


def flat(build: GraphBuilder, width: int = WIDTH) -> str:
    return str(build.op("MatMul", "hidden", build.weight(HIDDEN, width)))


#: The inputs of each operator that are always there.
PLAIN = {
    "Attention": lambda build: [build.heads(), build.heads(), build.heads()],
    "GroupQueryAttention": lambda build: [flat(build), flat(build), flat(build)],
    "SparseAttention": lambda build: [flat(build), flat(build), flat(build)],
    "MultiHeadAttention": lambda build: [flat(build), flat(build), flat(build)],
    "DecoderMaskedMultiHeadAttention": lambda build: [flat(build), flat(build), flat(build)],
    "com.microsoft.Attention": lambda build: ["hidden", build.weight(HIDDEN, 3 * WIDTH)],
    "QAttention": lambda build: ["hidden", build.weight(HIDDEN, 3 * WIDTH)],
    "DecoderMaskedSelfAttention": lambda build: ["hidden", build.weight(HIDDEN, 3 * WIDTH)],
}

NUMBERS = {"num_heads": HEADS}
GROUPED = {"num_heads": HEADS, "kv_num_heads": HEADS}
ATTRIBUTES: dict[str, dict[str, Any]] = dict.fromkeys(PLAIN, NUMBERS) | {
    "Attention": {},
    "GroupQueryAttention": GROUPED,
    "SparseAttention": GROUPED,
}


def block(kind: str, ports: dict[int, tuple[str, list[Any]]] | None = None, **attributes: Any) -> AttentionBlock:
    """What is said of one operator, with model inputs of these types and shapes at these ports."""
    build = builder_with_hidden_states(opset=25 if kind == "Attention" else 21, contrib=True)
    inputs = PLAIN[kind](build)
    for port, (element_type, shape) in sorted((ports or {}).items()):
        inputs += [""] * (port - len(inputs))
        inputs.append(build.input(f"port_{port}", shape, element_type))
    domain = "" if kind == "Attention" else MS
    out = build.op(kind.split(".")[-1], *inputs, domain=domain, **ATTRIBUTES[kind] | attributes)
    build.output(out, "logits", ["B", "N", WIDTH])
    (found,) = graphpass.analyze_caches(build.model()).attention
    return found


def plain(kind: str) -> AttentionBlock:
    causal = kind.startswith(("Group", "Decoder"))
    mask: Any = None if kind == "SparseAttention" else ("causal",) if causal else ()
    sizes = {"heads": HEADS, "key_heads": HEADS, "head_dim": SIZE, "value_head_dim": SIZE}
    return AttentionBlock("", kind, **sizes, scale=told(HALF), mask=mask, sinks=False)


@pytest.mark.parametrize("kind", PLAIN)
def test_operators_without_options_are_read(kind):
    assert dataclasses.replace(block(kind), node="") == plain(kind)


@pytest.mark.parametrize("kind", PLAIN)
def test_a_scale_of_its_own(kind):
    assert block(kind, scale=0.3).scale == 0.3


@pytest.mark.parametrize("kind", [kind for kind in PLAIN if kind != "SparseAttention"])
def test_a_missing_scale_is_the_default(kind):
    assert block(kind, scale=0.0).scale == told(HALF)


FULL, PADDING = ["B", 1, "N", "T"], ["B", "T"]


@pytest.mark.parametrize(
    ("kind", "ports", "attributes", "mask"),
    [
        ("Attention", {}, {"is_causal": 1}, ("causal",)),
        ("Attention", {3: ("f32", FULL)}, {}, ("input",)),
        ("Attention", {3: ("f32", FULL), 6: ("i64", ["B"])}, {"is_causal": 1}, ("causal", "input", "lengths")),
        ("GroupQueryAttention", {5: ("i32", ["B"])}, {}, ("causal", "lengths")),
        ("GroupQueryAttention", {10: ("f32", FULL)}, {}, ("causal", "input")),
        ("MultiHeadAttention", {}, {"unidirectional": 1}, ("causal",)),
        ("MultiHeadAttention", {4: ("i32", PADDING)}, {}, ("input",)),
        ("MultiHeadAttention", {4: ("i32", ["B"])}, {}, ("lengths",)),
        ("MultiHeadAttention", {5: ("f32", FULL)}, {}, ("input",)),
        ("DecoderMaskedMultiHeadAttention", {3: ("i32", PADDING)}, {}, ("causal", "input")),
        ("com.microsoft.Attention", {3: ("i32", PADDING)}, {"unidirectional": 1}, ("causal", "input")),
        ("com.microsoft.Attention", {5: ("f32", FULL)}, {}, ("input",)),
        ("DecoderMaskedSelfAttention", {3: ("i32", PADDING)}, {}, ("causal", "input")),
        ("QAttention", {5: ("i32", PADDING)}, {}, ("input",)),
    ],
)
def test_masks_of_operators_are_found(kind, ports, attributes, mask):
    assert block(kind, ports, **attributes).mask == mask


@pytest.mark.parametrize("kind", ["Attention", "GroupQueryAttention"])
def test_soft_caps_of_operators_are_found(kind):
    assert block(kind, softcap=30.0).softcap == 30.0


@pytest.mark.parametrize(
    ("kind", "attributes", "window"),
    [
        ("GroupQueryAttention", {"local_window_size": 4}, 4),
        ("GroupQueryAttention", {"local_window_size": -1}, None),
        ("Attention", {"left_window_size": 4}, 5),
        ("Attention", {"left_window_size": 0}, 1),
        ("Attention", {"left_window_size": -1}, None),
    ],
)
def test_windows_of_operators_are_found(kind, attributes, window):
    found = block(kind, **attributes)
    assert (found.window, found.window_in) == (window, "mask" if window else None)


def test_how_many_positions_grouped_query_attention_sees():
    """ONNX Runtime's kernel, measured: the query's own position is one of `local_window_size`."""
    feeds = {f"past_{role}": numpy.zeros((BATCH, HEADS, PAST, SIZE), numpy.float32) for role in ("key", "value")}
    model = grouped_query(window=4)
    without = random_step(model, **feeds)["logits"]
    seen = []
    for position in range(PAST):
        values = feeds["past_value"].copy()
        values[:, :, position] = 1.0
        if (random_step(model, **feeds | {"past_value": values})["logits"] != without).any():
            seen.append(position)
    assert seen == [PAST - 3, PAST - 2, PAST - 1]


@pytest.mark.parametrize(
    ("ports", "attributes", "sinks"),
    [({}, {}, False), ({11: ("f32", [HEADS])}, {}, True), ({}, {"smooth_softmax": 1}, True)],
)
def test_sinks_of_grouped_query_attention(ports, attributes, sinks):
    assert block("GroupQueryAttention", ports, **attributes).sinks is sinks


def test_query_keys_and_values_in_one_tensor():
    build = builder_with_hidden_states(contrib=True)
    packed = flat(build, (4 + 2 * 2) * SIZE)
    out = build.op("GroupQueryAttention", packed, domain=MS, num_heads=4, kv_num_heads=2)
    build.output(out, "logits", ["B", "N", 4 * SIZE])
    (found,) = graphpass.analyze_caches(build.model()).attention
    assert (found.heads, found.key_heads, found.head_dim, found.value_head_dim) == (4, 2, SIZE, SIZE)


def test_heads_in_one_axis_are_counted():
    build = builder_with_hidden_states(opset=23)
    query, key, value = flat(build, 4 * SIZE), flat(build, 2 * SIZE), flat(build, 2 * 5)
    out = build.op("Attention", query, key, value, q_num_heads=4, kv_num_heads=2)
    build.output(out, "logits", ["B", "N", 4 * 5])
    (found,) = graphpass.analyze_caches(build.model()).attention
    assert (found.heads, found.key_heads, found.head_dim, found.value_head_dim) == (4, 2, SIZE, 5)


def test_sizes_of_packed_attention_are_found():
    sizes = block("com.microsoft.Attention", qkv_hidden_sizes=[HEADS * 4, HEADS * 4, HEADS * 6])
    assert (sizes.head_dim, sizes.value_head_dim, sizes.scale) == (4, 6, 0.5)


def sdpa(*, causal: bool = False, heads: int = 2, inputs: int = 3, sink: bool = False) -> AttentionBlock:
    query = ops.parameter([-1, 4, -1, 16], numpy.float32)
    # As many keys as queries, since the causal mask of others differs between kernels.
    key, value = (query if causal else ops.parameter([-1, heads, -1, size], numpy.float32) for size in (16, 8))
    mask = ops.parameter([-1, 1, -1, -1], numpy.float32)
    further = [mask, ops.constant(numpy.float32(0.5))][: inputs - 3]
    if heads == 2 and not causal:
        shape = ops.constant([1, 2, 2, 1, 1])
        key, value = (
            ops.reshape(
                ops.broadcast(ops.unsqueeze(one, ops.constant(2)), shape, broadcast_spec="BIDIRECTIONAL"),
                ops.constant([0, 4, -1, size]),
                True,
            )
            for one, size in ((key, 16), (value, 8))
        )
    node: Any = ops.scaled_dot_product_attention(query, key, value, *further, causal=causal)
    if sink:
        from openvino.utils.node_factory import NodeFactory

        numbers = ops.constant(numpy.zeros([1, 4, 1, 1], numpy.float32))
        node = NodeFactory("opset13").create(
            "ScaledDotProductAttention",
            [one.output(0) for one in (query, key, value, *further, numbers)],
            {"causal": causal},
        )
    sources = [query, mask, *(_parameter(one) for one in (key, value) if not causal)]
    (found,) = graphpass.analyze_caches(OpenVINOModel(openvino.Model([ops.result(node)], sources))).attention
    return found


def _parameter(node: Any) -> Any:
    while node.get_type_name() != "Parameter":
        node = node.input_value(0).get_node()
    return node


def test_openvino_attention_has_default_attributes():
    found = sdpa()
    assert (found.heads, found.key_heads, found.head_dim, found.value_head_dim) == (4, 2, 16, 8)
    assert (found.scale, found.mask, found.sinks) == (0.25, (), False)


def test_openvino_attention_has_a_mask_and_a_scale():
    found = sdpa(inputs=5)
    assert (found.scale, found.mask, found.sinks) == (0.5, ("input",), False)


def test_causal_attention_of_openvino_ignores_its_mask():
    assert sdpa(inputs=5, causal=True).mask == ("causal",)


def test_openvino_attention_has_a_sink():
    found = sdpa(inputs=5, sink=True)
    assert (found.scale, found.mask, found.sinks) == (0.5, ("input",), True)


def test_openvino_attention_has_one_key_head():
    found = sdpa(heads=1)
    assert (found.heads, found.key_heads) == (4, 1)
