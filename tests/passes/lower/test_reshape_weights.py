"""Lowering reshape-weights: quantized embeddings, tied to the head by a Reshape, are declared as they are read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from support.decode import compiled

import graphpass
from graphpass import PassManager, parse
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.passes import Done

VOCABULARY, BLOCKS, BLOCK = 24, 2, 32


def tied(folder: Path) -> Path:
    """Embeddings and head over the same weights of 4 bits, as the builder of onnxruntime-genai writes them."""
    random = np.random.default_rng(0)
    weights = random.integers(0, 256, (VOCABULARY, BLOCKS, BLOCK // 2), np.uint8)
    scales = random.uniform(0.01, 0.1, (VOCABULARY, BLOCKS)).astype(np.float32)
    shape = np.array([VOCABULARY, -1], np.int64)
    nodes = [
        helper.make_node("Reshape", ["weights", "shape"], ["table"], "reshape"),
        helper.make_node(
            "GatherBlockQuantized",
            ["table", "ids", "scales"],
            ["embedded"],
            "embed",
            domain="com.microsoft",
            bits=4,
            block_size=BLOCK,
            gather_axis=0,
            quantize_axis=1,
        ),
        helper.make_node(
            "MatMulNBits",
            ["embedded", "weights", "scales"],
            ["logits"],
            "head",
            domain="com.microsoft",
            bits=4,
            block_size=BLOCK,
            K=BLOCKS * BLOCK,
            N=VOCABULARY,
        ),
    ]
    graph = helper.make_graph(
        nodes,
        "tied",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "length"])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "length", VOCABULARY])],
        [
            numpy_helper.from_array(array, name)
            for name, array in (("weights", weights), ("scales", scales), ("shape", shape))
        ],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    path = folder / "model.onnx"
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    onnx.save_model(model, path, save_as_external_data=True, location="model.onnx.data", size_threshold=256)
    return path


def reshaped(path: Path) -> OnnxModel:
    result = PassManager(parse("lower-operators")).run(graphpass.load(path))
    assert result.records[0].result == Done({"weights redeclared": 1}, changed=True)
    assert isinstance(result.model, OnnxModel)
    return result.model


def test_both_declarations_refer_to_the_same_bytes(tmp_path):
    graph = reshaped(tied(tmp_path)).proto.graph
    assert [node.op_type for node in graph.node] == ["GatherBlockQuantized", "MatMulNBits"]
    declared = {tensor.name: tensor for tensor in graph.initializer}
    assert set(declared) == {"weights", "scales", "table"}
    assert list(declared["table"].dims) == [VOCABULARY, BLOCKS * BLOCK // 2]
    assert declared["table"].external_data == declared["weights"].external_data


def test_both_runtimes_compute_the_reshaped_product(tmp_path):
    path = tied(tmp_path)
    ids = np.array([[0, 5, 23], [7, 7, 1]])
    (expected,) = onnxruntime.InferenceSession(path).run(None, {"ids": ids})
    out = tmp_path / "out"
    graphpass.save(reshaped(path), out / "model.onnx")
    (found,) = onnxruntime.InferenceSession(out / "model.onnx").run(None, {"ids": ids})
    np.testing.assert_array_equal(found, expected)
    converted = PassManager(parse("lower-operators,to-openvino")).run(graphpass.load(path)).model
    found = compiled(converted.ov_model)({"ids": ids})["logits"]
    np.testing.assert_allclose(found, expected, atol=2e-2 * np.abs(expected).max())


def test_a_second_run_changes_nothing(tmp_path):
    assert not PassManager(parse("lower-operators")).run(reshaped(tied(tmp_path))).records[0].result.changed


def test_a_computed_shape_is_unchanged(tmp_path):
    proto = onnx.load(tied(tmp_path))
    proto.graph.initializer.remove(next(tensor for tensor in proto.graph.initializer if tensor.name == "shape"))
    proto.graph.input.append(helper.make_tensor_value_info("shape", TensorProto.INT64, [2]))
    assert not PassManager(parse("lower-operators")).run(OnnxModel(proto)).records[0].result.changed
