"""Shapes of what ONNX Runtime's own operators make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from onnx import TensorProto, helper
from support.models import export

from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.io import load

MS = "com.microsoft"


def shape_of(
    op: str,
    inputs: dict[str, list[Any]],
    outputs: int = 1,
    domain: str = MS,
    opset: int = 17,
    types: Mapping[str, int] | None = None,
    **given: Any,
) -> list[Any]:
    """The shapes of what one operator makes; a name that starts with ``no`` is an input that is left out."""
    names = ["" if name.startswith("no") else name for name in inputs]
    made = [f"made_{number}" for number in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op, names, made, domain=domain, **given)],
        "one",
        [
            helper.make_tensor_value_info(name, (types or {}).get(name, TensorProto.FLOAT), inputs[name])
            for name in names
            if name
        ],
        [helper.make_empty_tensor_value_info(name) for name in made],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MS, 1)]
    model = OnnxModel(helper.make_model(graph, opset_imports=opsets))
    return [value.shape for value in next(node for node in model.graph.nodes if node.op.endswith(op)).outputs]


@pytest.mark.parametrize("opset", [11, 13, 14])
def test_the_rank_of_a_reshape_is_the_length_of_its_computed_shape(opset: int) -> None:
    """Before opset 14, inference of Reshape reads constants alone, and values downstream have no rank."""
    graph = helper.make_graph(
        [
            helper.make_node("Shape", ["x"], ["shape"]),
            helper.make_node("Slice", ["shape", "first", "last"], ["rest"]),
            helper.make_node("Concat", ["open", "rest"], ["sizes"], axis=0),
            helper.make_node("Reshape", ["ids", "sizes"], ["split"]),
            helper.make_node("Neg", ["split"], ["negated"]),
        ],
        "reshaped",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", 4, "n"]),
            helper.make_tensor_value_info("ids", TensorProto.INT64, ["all"]),
        ],
        [helper.make_empty_tensor_value_info("negated")],
        [
            helper.make_tensor(name, TensorProto.INT64, [1], [number])
            for name, number in {"first": 1, "last": 3, "open": -1}.items()
        ],
    )
    model = OnnxModel(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]))
    result = next(model.graph.of_op("Negative")).outputs[0]
    assert (result.rank, result.element_type) == (3, "i64")


def test_shapes_of_packed_attention_are_inferred():
    inputs = {
        "qkv": ["b", "n", 128],
        "no_key": [],
        "no_value": [],
        "key": ["b", 2, "p", "d"],
        "value": ["b", 2, "p", "d"],
    }
    out, key, value = shape_of("GroupQueryAttention", inputs, 3, num_heads=4, kv_num_heads=2)
    assert out == ("b", "n", 64)
    assert key[1] == value[1] == 2
    assert key[3] == value[3] == 16


@pytest.mark.parametrize("kind", ["UINT8", "UINT16", None])
@pytest.mark.parametrize("scales", [[], [16]])
def test_shapes_of_rounded_activations_are_inferred(kind: str | None, scales: list[int]) -> None:
    """ONNX's own operators have no 16 bits before opset 21."""
    given = {"x": (TensorProto.FLOAT, ["b", "n", 16]), "scale": (TensorProto.FLOAT, scales)}
    given |= {"zero": (getattr(TensorProto, kind), scales)} if kind else {}
    names = list(given)
    graph = helper.make_graph(
        [
            helper.make_node("QuantizeLinear", names, ["few"], domain=MS, axis=-1),
            helper.make_node("DequantizeLinear", ["few", *names[1:]], ["back"], domain=MS, axis=-1),
        ],
        "both",
        [helper.make_tensor_value_info(name, *given[name]) for name in names],
        [helper.make_empty_tensor_value_info("back")],
    )
    model = OnnxModel(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)]))
    few, back = (next(model.graph.of_op(op)).outputs[0] for op in ("QuantizeLinear", "DequantizeLinear"))
    assert few.shape == back.shape == ("b", "n", 16)
    assert (few.element_type, back.element_type) == ("u16" if kind == "UINT16" else "u8", "f32")


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize("past", ["past", "no_past"])
def test_shapes_of_projected_attention_are_inferred(opset, past):
    """ONNX Runtime's scripts write it in opset 11."""
    inputs = {"x": ["b", "n", 8], "w": [8, 24], "bias": [24], "no_mask": [], past: [2, "b", 4, "p", 2]}
    out, present = shape_of("Attention", inputs, 2, opset=opset, num_heads=4)
    assert out == ("b", "n", 8)
    assert present[:3] == (2, "b", 4)
    assert present[4] == 2
    out, _ = shape_of("Attention", inputs, 2, opset=opset, num_heads=2, qkv_hidden_sizes=[8, 8, 8])
    assert out == ("b", "n", 8)


def test_shapes_of_embeddings_are_inferred():
    inputs = {"ids": ["b", "n"], "no_types": [], "words": [9, 8], "places": [5, 8]}
    norm, _, total = shape_of("EmbedLayerNormalization", inputs, 3, types={"ids": TensorProto.INT32})
    assert norm == total == ("b", "n", 8)


def test_shapes_of_multi_head_attention_are_inferred():
    inputs = {"q": ["b", "n", 64], "k": ["b", "m", 64], "v": ["b", "m", 48]}
    past = {"no_bias": [], "no_padding": [], "no_mask": [], "key": ["b", 4, "p", 16], "value": ["b", 4, "p", 12]}
    assert shape_of("MultiHeadAttention", inputs, num_heads=4) == [("b", "n", 48)]
    out, key, value = shape_of("MultiHeadAttention", inputs | past, 3, num_heads=4)
    assert out == ("b", "n", 48)
    assert (key[:2], key[3]) == (("b", 4), 16)
    assert (value[:2], value[3]) == (("b", 4), 12)


def test_multi_head_attention_with_split_heads():
    inputs = {"q": ["b", "n", 64], "k": ["b", 4, "m", 16], "v": ["b", 4, "m", 6]}
    assert shape_of("MultiHeadAttention", inputs, num_heads=4) == [("b", "n", 24)]


@pytest.mark.parametrize("heads", [(4, 2), (2, 4)])
def test_shapes_of_linear_attention_are_inferred(heads):
    inputs = {"q": ["b", "n", 8 * heads[0]], "k": ["b", "n", 8 * heads[1]], "v": ["b", "n", 6 * heads[1]]}
    state = ["b", heads[1], 8, 6]
    found = shape_of("LinearAttention", inputs | {"past": state}, 2, q_num_heads=heads[0], kv_num_heads=heads[1])
    assert found == [("b", "n", 24), tuple(state)]


def test_shapes_of_a_quantized_product_are_inferred():
    inputs = {"x": ["b", "n", 64], "weight": [96, 2, 16], "scales": [96, 2]}
    assert shape_of("MatMulNBits", inputs, K=64, N=96, bits=4, block_size=32) == [("b", "n", 96)]


def test_norms_and_convolutions_keep_the_shape():
    hidden = ["b", "n", 64]
    assert shape_of("SkipSimplifiedLayerNormalization", {"x": hidden, "s": hidden, "g": [64]}, 4)[::3] == [
        ("b", "n", 64),
        ("b", "n", 64),
    ]
    assert shape_of("SimplifiedLayerNormalization", {"x": hidden, "g": [64]}, domain="") == [("b", "n", 64)]
    inputs = {"x": ["b", 64, "n"], "w": [64, 1, 3], "no_bias": [], "past": ["b", 64, 2]}
    assert shape_of("CausalConvWithState", inputs, 2) == [("b", 64, "n"), ("b", 64, 2)]


def test_the_builder_s_model_is_known_to_its_end():
    graph = load(export("lfm2", "onnx-genai")).graph
    unknown = [value.name for node in graph.nodes for value in node.outputs if value.name and value.rank is None]
    assert not [name for name in unknown if "/output_1" not in name]


def test_a_buffer_written_by_a_loop_keeps_its_shape():
    """As a scripted loop over tokens does; inference gives carried tensors no shape."""
    whole = ["b", "n", 4]
    body = helper.make_graph(
        [
            helper.make_node("Gather", ["rows", "number"], ["row"], axis=1),
            helper.make_node("Constant", [], ["first"], value_ints=[0]),
            helper.make_node("Unsqueeze", ["number", "first"], ["place"]),
            helper.make_node("Unsqueeze", ["place", "first"], ["places"]),
            helper.make_node("Unsqueeze", ["row", "first"], ["update"]),
            helper.make_node("ScatterND", ["held", "places", "update"], ["written"]),
            helper.make_node("Identity", ["go"], ["go_on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("number", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_empty_tensor_value_info("held"),
        ],
        [helper.make_empty_tensor_value_info("go_on"), helper.make_empty_tensor_value_info("written")],
    )
    graph = helper.make_graph(
        [
            helper.make_node("Loop", ["count", "", "rows"], ["out"], body=body),
            helper.make_node("Relu", ["out"], ["made"]),
        ],
        "loop",
        [
            helper.make_tensor_value_info("rows", TensorProto.FLOAT, whole),
            helper.make_tensor_value_info("count", TensorProto.INT64, []),
        ],
        [helper.make_empty_tensor_value_info("made")],
    )
    model = OnnxModel(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    (made,) = next(model.graph.of_op("Relu")).outputs
    assert made.shape == tuple(whole)
    sizes = model.analysis(infer_sizes)
    assert sizes.shape(made) == sizes.shape(model.graph.parameters["rows"])
