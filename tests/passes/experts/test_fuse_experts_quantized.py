"""fuse-experts on quantized weights: QMoE with the same numbers, what it leaves, and decoders that compute the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import onnx
import pytest
from hypothesis import assume, given, settings, strategies as st
from onnx import helper
from support.compressed_weights import with_dequantize_linear, with_matmul_nbits
from support.expert_graphs import EXPERTS, experts, quantized
from support.fused_experts import assert_stays, findings, fused
from support.loaded import converted
from support.models import export
from support.operators import count_operators

import graphpass
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.runtime.backends.onnxruntime_request import OnnxRuntimeRequest
from graphpass.verify import compare

SIZES = {"hidden": 32, "inner": 64}


def run(model: OnnxModel, *, exact: bool = True) -> numpy.ndarray:
    tokens = numpy.random.default_rng(1).standard_normal((2, 5, SIZES["hidden"])).astype(numpy.float32)
    return OnnxRuntimeRequest(model, exact).infer({"x": tokens})["y"]


def layer(
    stored: str = "nbits4", form: str = "separate", block: int = 16, zeros: bool = True, **given: Any
) -> OnnxModel:
    return quantized(experts(form, **SIZES, **given), stored, block, zeros=zeros)


@settings(deadline=None, max_examples=25)
@given(
    form=st.sampled_from(["separate", "dense", "gathered"]),
    router=st.sampled_from(["softmax first", "softmax last", "plain", "sigmoid"]),
    columns=st.sampled_from(["apart", "pairs", "halves", "linear part first", "one"]),
    stored=st.sampled_from(["nbits4", "nbits8", "int4", "uint4", "int8", "uint8"]),
    block=st.sampled_from([16, 32]),
    zeros=st.booleans(),
    bias=st.booleans(),
    turned=st.booleans(),
)
def test_all_forms_compute_the_same(form, router, columns, stored, block, zeros, bias, turned):
    assume(not stored.startswith("nbits") or (form == "separate" and not turned))
    made = experts(form, router, columns, "silu", bias=bias, turned=turned, **SIZES)
    model = quantized(made, stored, block, zeros=zeros, turned=turned)
    after, done = fused(model, "{activations=int8}" if stored.endswith("8") else "")
    assert done.statistics["layers fused"] == 1
    kinds = count_operators(after)
    assert kinds["QMoE"] == 1
    assert not kinds["Log"]
    assert not {"DequantizeLinear", "MatMulNBits"} & kinds.keys()
    wanted = run(model)
    scale = numpy.abs(wanted).max()
    numpy.testing.assert_allclose(run(after) / scale, wanted / scale, atol=1e-5)
    assert not fused(after)[1].changed
    assert findings(after) == [("fused", "one operator, QMoE")]


def test_quantized_weights_and_scales_are_unchanged():
    model = layer("nbits4", zeros=False, columns="one", kind="relu")
    after, done = fused(model)
    before = {one.name: onnx.numpy_helper.to_array(one) for one in model.proto.graph.initializer}
    held = {one.name: onnx.numpy_helper.to_array(one) for one in after.proto.graph.initializer}
    (node,) = (one for one in after.proto.graph.node if one.op_type == "QMoE")
    products = [one for one in model.proto.graph.node if one.op_type == "MatMulNBits"]
    for port, place in ((2, 0), (5, 1)):
        for part in (0, 1):
            wanted = [
                before[one.input[1 + part]].reshape(*held[node.input[port + part]].shape[1:])
                for one in products[place::2]
            ]
            numpy.testing.assert_array_equal(held[node.input[port + part]], wanted)
    assert done.statistics["weights rewritten"] == 4
    assert {one.name: one.i for one in node.attribute if one.name in {"accuracy_level", "block_size"}} == {
        "accuracy_level": 1,
        "block_size": 16,
    }


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"stored": "int8"}, "QMoE rounds activations to 8 bits for weights in 8 bits; activations=int8 allows it"),
        ({"stored": "uint4", "block": 8}, "blocks of 8 are not a power of 2, at least 16, that divides"),
        ({"kind": "gelu"}, "a function of 2 products between the products of an expert is not an activation of MoE"),
    ],
)
def test_unsupported_layers_stay(given, reason):
    """The pass notes what `check` prints."""
    assert_stays(layer(**given), reason)


def test_other_providers_leave_quantized_experts():
    model = layer()
    assert not fused(model, "{quantized=false}")[1].changed
    ((verdict, reason),) = findings(model, "ort{device=cuda}")
    assert verdict == "plain"
    assert "CUDAExecutionProvider has no tested kernel of QMoE" in str(reason)
    ((verdict, _),) = findings(fused(model)[0], "ort{device=cuda}")
    assert verdict == "not fused"


def test_rounding_of_activations_is_kept():
    model = layer("nbits8")
    for node in model.proto.graph.node:
        if node.op_type == "MatMulNBits":
            node.attribute.append(helper.make_attribute("accuracy_level", 4))
    after, done = fused(model)
    assert done.statistics["layers fused"] == 1
    (node,) = (one for one in after.proto.graph.node if one.op_type == "QMoE")
    assert {one.name: one.i for one in node.attribute}["accuracy_level"] == 4
    wanted = run(model, exact=False)
    numpy.testing.assert_allclose(run(after, exact=False), wanted, atol=1e-5 * numpy.abs(wanted).max())
    assert numpy.abs(run(after) - wanted).max() > 1e-4 * numpy.abs(wanted).max()


def test_weights_are_written_into_a_file(tmp_path):
    model = layer("uint4", form="dense", zeros=True, bias=True)
    wanted = run(model)
    onnx.save(model.proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=100)
    after, _ = fused(graphpass.load(tmp_path / "m.onnx"))
    graphpass.save(after, tmp_path / "out" / "m.onnx")
    written = graphpass.load(tmp_path / "out" / "m.onnx")
    assert isinstance(written, OnnxModel)
    numpy.testing.assert_allclose(run(written), wanted, atol=1e-5 * numpy.abs(wanted).max())
    (node,) = (one for one in written.proto.graph.node if one.op_type == "QMoE")
    shapes = {one.name: tuple(one.dims) for one in written.proto.graph.initializer}
    assert shapes[node.input[2]] == (EXPERTS, 2 * SIZES["inner"], SIZES["hidden"] // 2)
    assert shapes[node.input[11]] == (EXPERTS, 2 * SIZES["inner"], 1)


CASES = [
    ("qwen3_moe", "nbits", "ort"),
    ("deepseek_v3", "nbits", "ort"),
    ("qwen3_moe", "uint4", "ort"),
    ("qwen3_moe", "nbits", "ort{precision=f16}"),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "stored", "target"), CASES)
def test_decoders_compute_the_same(tmp_path: Path, name, stored, target):
    """Prefill and steps, of one row and of two, padded, against the quantized export."""
    source = export(name, "onnx") / "model.onnx"
    if stored == "nbits":
        path = with_matmul_nbits(source, tmp_path / "made", 4, zero_points=True)
    else:
        path = with_dequantize_linear(source, tmp_path / "made", stored, blocks=True)
    before = graphpass.load(path)
    after = converted(before, target).model
    assert isinstance(after, OnnxModel)
    assert count_operators(after)["QMoE"] == {"qwen3_moe": 2, "deepseek_v3": 1}[name]
    assert not {"NonZero", "OneHot"} & count_operators(after).keys()
    assert compare(before, after, steps=4).passed
    assert {verdict for verdict, _ in findings(after)} == {"fused"}
    assert {str(reason).partition(": ")[2] for _, reason in findings(before)} == {"run fuse-experts"}
