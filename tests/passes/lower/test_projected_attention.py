"""Lowering attention that computes query, key and value from weights: the numbers of ONNX Runtime's kernels."""

from __future__ import annotations

from typing import Any

import numpy
import onnxruntime
import pytest
from hypothesis import given, settings, strategies as st
from onnx import TensorProto, helper, numpy_helper
from support.models import exporters

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.errors import UnsupportedError
from graphpass.io import load
from graphpass.testing import run
from graphpass.verify.structure.proof import compare_structures

HEADS, SIZE, WIDTH = 2, 4, 12
KINDS = {"float": TensorProto.FLOAT, "int": TensorProto.INT32, "byte": TensorProto.UINT8}


def build(mask: list[Any] | None, *, past: bool = True, quantized: bool = False, **attributes: Any) -> OnnxModel:
    """An operator with inputs x, mask and past, and outputs result and present."""
    random = numpy.random.default_rng(1)
    sizes = attributes.get("qkv_hidden_sizes", [HEADS * SIZE] * 3)
    weights = {
        "w": random.normal(size=(WIDTH, sum(sizes))).astype(numpy.float32),
        "b": random.normal(size=sum(sizes)).astype(numpy.float32),
    }
    inputs = [("x", "byte" if quantized else "float", ["batch", "length", WIDTH])]
    names = ["x", "w", "b", *(["x_scale", "w_scale"] if quantized else [])]
    if quantized:
        weights["w"] = random.integers(-100, 100, (WIDTH, sum(sizes))).astype(numpy.int8)
        weights |= {"x_scale": numpy.float32(0.03), "w_scale": numpy.float32(0.01), "x_zero": numpy.uint8(120)}
        weights["w_zero"] = numpy.int8(0)
    names.append("" if mask is None else "mask")
    names += ["x_zero", "w_zero"] if quantized else []
    inputs += [] if mask is None else [("mask", "int", mask)]
    outputs = [("result", "float", ["batch", "length", sizes[2]])]
    if past:
        names.append("past")
        inputs.append(("past", "float", [2, "batch", HEADS, "before", SIZE]))
        outputs.append(("present", "float", [2, "batch", HEADS, "total", SIZE]))
    node = helper.make_node(
        "QAttention" if quantized else "Attention",
        names,
        [name for name, *_ in outputs],
        "attention",
        domain="com.microsoft",
        num_heads=HEADS,
        **attributes,
    )
    ports = [[helper.make_tensor_value_info(name, KINDS[kind], shape) for name, kind, shape in side] for side in
             (inputs, outputs)]  # fmt: skip
    initializers = [numpy_helper.from_array(numpy.asarray(array), name) for name, array in weights.items()]
    graph = helper.make_graph([node], "attention", *ports, initializers)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return OnnxModel(helper.make_model(graph, opset_imports=opsets, ir_version=9))


def lowered(model: OnnxModel) -> OnnxModel:
    result = run(model, "lower-operators")
    assert isinstance(result, OnnxModel)
    assert not any(node.domain == "com.microsoft" for node in result.proto.graph.node)
    result.validate()
    return result


def outputs(model: OnnxModel, feeds: dict[str, numpy.ndarray]) -> list[Any]:
    session = onnxruntime.InferenceSession(model.proto.SerializeToString())
    return list(session.run(None, feeds))


def feeds(model: OnnxModel, batch: int, length: int, before: int) -> dict[str, numpy.ndarray]:
    sizes = {"batch": batch, "length": length, "before": before, "total": before + length}
    random, made = numpy.random.default_rng(2), {}
    for port in model.inputs:
        shape = [sizes[size] if isinstance(size, str) else size for size in port.shape or ()]
        if port.element_type == "u8":
            made[port.name] = random.integers(0, 255, shape).astype(numpy.uint8)
        elif port.name != "mask":
            made[port.name] = random.normal(size=shape).astype(numpy.float32)
        elif len(shape) == 1:
            made["mask"] = random.integers(1, length + 1, shape).astype(numpy.int32)
        else:
            made["mask"] = (random.uniform(size=shape) > 0.3).astype(numpy.int32)
            made["mask"][..., 0] = 1  # no row without keys
    return made


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_computes_the_same(data):
    past = data.draw(st.booleans())
    masks = [None, ["batch", "total"], ["batch", "length", "total"]]
    # The number of keys of a row has no meaning beside a past.
    mask = data.draw(st.sampled_from(masks if past else [*masks, ["batch"]]))
    attributes = {"unidirectional": data.draw(st.integers(0, 1))}
    attributes |= {"scale": 0.3} if data.draw(st.booleans()) else {}
    quantized = past and data.draw(st.booleans())
    if not quantized and data.draw(st.booleans()):
        attributes["qkv_hidden_sizes"] = [8, 8, 8] if past else [8, 8, 12]
    model = build(mask, past=past, quantized=quantized, **({} if quantized and "scale" in attributes else attributes))
    if not past:
        model.proto.graph.node[0].output.append("")
    length = data.draw(st.integers(1, 4))
    given_feeds = feeds(model, data.draw(st.integers(1, 3)), length, data.draw(st.integers(0, 3)) if past else 0)
    for expected, found in zip(outputs(model, given_feeds), outputs(lowered(model), given_feeds), strict=True):
        numpy.testing.assert_allclose(found, expected, atol=2e-4)


@pytest.mark.parametrize("change", [{}, {"scale": 0.2}, {"unidirectional": 0}, {"num_heads": 2}])
def test_the_proof_has_the_same_definition(change):
    source = load(exporters("ort-script", "gpt2"))
    assert isinstance(source, OnnxModel)
    model = source.clone()
    for node in model.proto.graph.node:
        if node.op_type == "Attention":
            kept = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
            del node.attribute[:]
            node.attribute.extend(helper.make_attribute(*given) for given in (kept | change).items())
    model.mark_edited()
    proof = compare_structures(model, run(source, "upgrade-opset,lower-operators"))
    assert proof is not None
    assert proof.is_complete_with_padding == (not change)


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [({"do_rotary": 1}, "do_rotary"), ({"past_present_share_buffer": 1}, "past_present_share_buffer")],
)
def test_refuses_what_it_does_not_compute(attributes, reason):
    with pytest.raises(UnsupportedError, match=f"GP341.*{reason}"):
        run(build(None, **attributes), "lower-operators")


def test_refuses_a_mask_of_another_meaning():
    """Numbers of keys may be followed by those of hidden keys before them."""
    with pytest.raises(UnsupportedError, match=r"GP341.*mask is not a row length"):
        run(build(["twice"]), "lower-operators")


def test_operators_without_a_cache_stay():
    model = build(None, past=False)
    assert run(model, "lower-operators").proto == model.proto
