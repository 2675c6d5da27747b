"""The pass `fuse-quantized-weights`: the numbers of DequantizeLinear, bytes that stay, and what it leaves."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy
import onnxruntime
import pytest
from hypothesis import given, settings, strategies as st
from onnx import TensorProto, helper, numpy_helper
from support.compressed_weights import packed, stored_bytes, with_dequantize_linear
from support.models import export
from support.operators import count_operators

import graphpass
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.verify import compare

TYPES = {"int4": TensorProto.INT4, "uint4": TensorProto.UINT4, "int8": TensorProto.INT8, "uint8": TensorProto.UINT8}


def build(stored: str, rows: int, blocks: int, block: int, *, zeros: bool = True, table: bool = False) -> OnnxModel:
    """A product with a weight ``[rows, columns]`` in blocks, or rows read from it."""
    random, code, bits = numpy.random.default_rng(rows), TYPES[stored], int(stored[-1])
    lowest = -(2 ** (bits - 1)) if stored.startswith("int") else 0
    shapes = {"weight": (rows, blocks * block), "zeros": (rows, blocks)}
    numbers = {name: random.integers(lowest, lowest + 2**bits, shape) for name, shape in shapes.items()}
    held = [
        helper.make_tensor(name, code, array.shape, packed(array, bits), raw=True) for name, array in numbers.items()
    ]
    held = held if zeros else held[:1]
    scales = random.uniform(0.01, 0.02, shapes["zeros"]).astype(numpy.float32)
    names = ["weight", "scales", *(["zeros"] if zeros else [])]
    nodes = [helper.make_node("DequantizeLinear", names, ["wide"], axis=1, block_size=block)]
    if table:
        nodes.append(helper.make_node("Gather", ["wide", "x"], ["y"], "product"))
    else:
        nodes.append(helper.make_node("Transpose", ["wide"], ["turned"], perm=[1, 0]))
        nodes.append(helper.make_node("MatMul", ["x", "turned"], ["y"], "product"))
    info = helper.make_tensor_value_info
    x = info("x", TensorProto.INT64, ["b", "n"]) if table else info("x", TensorProto.FLOAT, ["b", "n", blocks * block])
    y = info("y", TensorProto.FLOAT, ["b", "n", blocks * block if table else rows])
    graph = helper.make_graph(nodes, "weight", [x], [y], [*held, numpy_helper.from_array(scales, "scales")])
    return OnnxModel(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))


def fused(model: OnnxModel, activations: str = "f32") -> tuple[OnnxModel, Any]:
    passes = graphpass.parse(f"fuse-quantized-weights{{activations={activations}}}")
    result = graphpass.PassManager(passes).run(model)
    assert isinstance(result.model, OnnxModel)
    return result.model, result.records[0].result


def ran(model: OnnxModel, x: numpy.ndarray) -> numpy.ndarray:
    """The result without ONNX Runtime's own fusions, which round activations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    opened = onnxruntime.InferenceSession(model.proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found: numpy.ndarray = opened.run(None, {"x": x})[0]
    return found


forms = {"rows": st.integers(1, 9), "blocks": st.integers(1, 5), "block": st.sampled_from([16, 32, 64])}


@settings(deadline=None, max_examples=25)
@given(stored=st.sampled_from(["int4", "uint4"]), zeros=st.booleans(), **forms)
def test_products_equal_dequantized_weights(stored, zeros, rows, blocks, block):
    model = build(stored, rows, blocks, block, zeros=zeros)
    after, result = fused(model)
    written = int(stored == "int4")
    assert result.statistics == {"products fused": 1, "tables fused": 0, "weights rewritten": written}
    assert set(count_operators(after)) == {"MatMulNBits"}
    x = numpy.random.default_rng(0).standard_normal((2, 3, blocks * block)).astype(numpy.float32)
    numpy.testing.assert_allclose(ran(after, x), ran(model, x), rtol=1e-4, atol=1e-4)


@settings(deadline=None, max_examples=25)
@given(stored=st.sampled_from(sorted(TYPES)), zeros=st.booleans(), **forms)
def test_rows_of_tables_equal_dequantized_tables(stored, zeros, rows, blocks, block):
    model = build(stored, rows, blocks, block, zeros=zeros, table=True)
    after, _ = fused(model)
    assert set(count_operators(after)) == {"GatherBlockQuantized"}
    x = numpy.random.default_rng(0).integers(0, rows, (2, 3))
    numpy.testing.assert_array_equal(ran(after, x), ran(model, x))
    assert after.graph.parameters["x"].shape == ("b", "n")
    assert next(after.graph.of_op("GatherBlockQuantized")).outputs[0].shape == ("b", "n", blocks * block)


@settings(deadline=None, max_examples=10)
@given(stored=st.sampled_from(sorted(TYPES)), zeros=st.booleans(), **forms)
def test_activations_in_8_bits_are_close(stored, zeros, rows, blocks, block):
    model = build(stored, rows, blocks, block, zeros=zeros)
    after, _ = fused(model, "int8")
    assert set(count_operators(after)) == {"MatMulNBits"}
    x = numpy.random.default_rng(0).standard_normal((2, 3, blocks * block)).astype(numpy.float32)
    wanted = ran(model, x)
    numpy.testing.assert_allclose(ran(after, x), wanted, atol=0.02 * numpy.abs(wanted).max() + 0.02)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (build("int8", 8, 2, 32), "MatMulNBits is not faster with 8 bits and activations in f32"),
        (build("uint4", 8, 2, 24), "blocks of 24 are not a power of 2"),
        (build("uint4", 8, 4, 8), "blocks of 8 are not a power of 2"),
    ],
)
def test_other_weights_stay_with_the_reason(model, reason):
    after, result = fused(model)
    assert after.digest() == model.digest()
    assert reason in result.notes[0]


def test_weights_with_inputs_first_are_left_to_onnx_runtime(tmp_path: Path):
    source = export("llama", "onnx") / "model.onnx"
    model = graphpass.load(with_dequantize_linear(source, tmp_path / "made", "uint4", blocks=True))
    after, result = fused(model)
    assert after.digest() == model.digest()
    assert not result.notes


@pytest.mark.parametrize("stored", ["uint4", pytest.param("int4", marks=pytest.mark.slow)])
def test_a_decoder_computes_the_same(tmp_path: Path, stored):
    source = export("llama", "onnx") / "model.onnx"
    path = with_dequantize_linear(source, tmp_path / "made", stored, blocks=True, outputs_first=True)
    model = graphpass.load(path)
    assert isinstance(model, OnnxModel)
    after, result = fused(model)
    assert result.statistics["products fused"] == 15
    assert result.statistics["tables fused"] == 1
    assert not count_operators(after)["DequantizeLinear"]
    assert compare(model, after, steps=4).passed
    if stored == "uint4":
        table = Counter(tensor.raw_data for tensor in after.proto.graph.initializer)
        assert not stored_bytes(model.proto) - table
