"""The pass `fuse-causal-conv`: windows of all widths, the numbers over chunks, and what it leaves."""

from __future__ import annotations

from typing import Any

import numpy
import onnxruntime
import pytest
from hypothesis import given, settings, strategies as st
from onnx import TensorProto, helper, numpy_helper

import graphpass
from graphpass.dialects.onnx.model import OnnxModel

CHANNELS = 6


def build(
    kernel: int = 4,
    width: int = 3,
    dilation: int = 1,
    *,
    bias: bool = True,
    start: str = "const",
    padded: bool = False,
    **given: Any,
) -> OnnxModel:
    """Columns after a cached window, convolved; ``given`` are attributes of Conv, or of the Slice ``kept``.

    If ``padded``, as transformers 5 exports it: zeros on both sides, and SiLU before the cut.
    """
    kept, node, reach = given.pop("kept", -width), helper.make_node, (kernel - 1) * dilation
    random = numpy.random.default_rng(0)
    surplus = width if padded else width - reach
    numbers = {"last": [kept], "end": [2**63 - 1], "columns": [2], "surplus": [surplus], "zero": [0]}
    if padded:
        given.setdefault("pads", [reach, reach])
    held = [numpy_helper.from_array(numpy.array(value, numpy.int64), name) for name, value in numbers.items()]
    held += [
        numpy_helper.from_array(random.standard_normal(shape).astype(numpy.float32), name)
        for name, shape in {"weight": (CHANNELS, 1, kernel), "bias": (CHANNELS,)}.items()
    ]
    nodes = [
        node("Concat", ["past", "new"], ["whole"], axis=2),
        node(
            "Conv",
            ["whole", "weight", *(["bias"] if bias else [])],
            ["all"],
            "conv",
            **({"group": CHANNELS, "kernel_shape": [kernel], "dilations": [dilation]} | given),
        ),
        node("Slice", ["whole", "last", "end", "columns"], ["present"]),
    ]
    if start == "length":  # as PyTorch writes [:, :, -length:]
        nodes += [node("Shape", ["new"], ["shape"], start=2), node("Neg", ["shape"], ["first"])]
    if padded:
        nodes += [
            node("Shape", ["whole"], ["count"], start=2),
            node("Slice", ["all", "zero", "count", "columns"], ["unpadded"]),
            node("Sigmoid", ["unpadded"], ["gate"]),
            node("Mul", ["unpadded", "gate"], ["active"]),
        ]
    first = "surplus" if start == "const" else "first"
    nodes.append(node("Slice", ["active" if padded else "all", first, "end", "columns"], ["convolved"]))
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "window",
        [info("new", TensorProto.FLOAT, ["b", CHANNELS, "n"]), info("past", TensorProto.FLOAT, ["b", CHANNELS, width])],
        [
            info("convolved", TensorProto.FLOAT, ["b", CHANNELS, None]),
            info("present", TensorProto.FLOAT, ["b", CHANNELS, None]),
        ],
        held,
    )
    return OnnxModel(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))


def fused(model: OnnxModel) -> tuple[OnnxModel, Any]:
    result = graphpass.PassManager(graphpass.parse("fuse-causal-conv")).run(model)
    assert isinstance(result.model, OnnxModel)
    return result.model, result.records[0].result


def session(model: OnnxModel) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(model.proto.SerializeToString(), providers=["CPUExecutionProvider"])


@settings(deadline=None, max_examples=20)
@given(
    kernel=st.integers(2, 4),
    dilation=st.integers(1, 2),
    surplus=st.integers(0, 2),
    bias=st.booleans(),
    start=st.sampled_from(["const", "length"]),
    padded=st.booleans(),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4),
)
def test_chunks_compute_the_same(kernel, dilation, surplus, bias, start, padded, lengths):
    width = (kernel - 1) * dilation + surplus
    model = build(kernel, width, dilation, bias=bias, start=start, padded=padded)
    after, result = fused(model)
    assert result.statistics == {"windows fused": 1, "windows left": 0}, result.notes
    kinds = [node.op_type for node in after.proto.graph.node]
    assert "CausalConvWithState" in kinds
    assert "Conv" not in kinds
    both, random = (session(model), session(after)), numpy.random.default_rng(2)
    past = random.standard_normal((2, CHANNELS, width)).astype(numpy.float32)
    for length in lengths:
        new = random.standard_normal((2, CHANNELS, length)).astype(numpy.float32)
        wanted, found = (one.run(None, {"past": past, "new": new}) for one in both)
        for want, got in zip(wanted, found, strict=True):
            numpy.testing.assert_allclose(got, want, atol=1e-5)
        past = wanted[1]


def test_the_result_has_no_unfused_convolution():
    after, _ = fused(build())
    again, result = fused(after)
    assert not result.notes
    assert again.digest() == after.digest()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"width": 2}, "past has 2 columns, but a result reads 3 of earlier steps"),
        ({"pads": [1, 0]}, "it pads by 1 and 0 columns"),
        ({"pads": [0, 2]}, "it pads by 0 and 2 columns"),
        ({"padded": True, "pads": [2, 3]}, "it pads by 2 and 3 columns"),
        ({"pads": [3, 3]}, "results of padding at the end are not sliced off first"),
        ({"pads": [3, 0]}, "results of 3 columns before the new ones are not sliced off"),
        ({"auto_pad": "SAME_LOWER"}, "it has auto_pad, or strides other than 1"),
        ({"strides": [2]}, "it has auto_pad, or strides other than 1"),
        ({"kept": -2}, "Slice also reads the window, but does not slice its last 3 columns"),
        ({"group": 3}, "not one kernel for each of 3 channels"),
    ],
)
def test_other_windows_stay_with_the_reason(given, reason):
    model = build(**given)
    after, result = fused(model)
    assert after.digest() == model.digest()
    assert reason in result.notes[0]
