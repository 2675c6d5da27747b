"""The same inventory whatever is known of the shapes, and however constants are folded."""

from __future__ import annotations

import dataclasses

import onnx
import onnxruntime
import openvino
import pytest
from openvino.passes import ConstantFolding, Manager
from support.loaded import exported

import graphpass
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.ir.cache import Inventory

IR = [
    (model, variant)
    for model in ("llama", "gpt2", "qwen3", "gemma3_text", "qwen3_moe", "deepseek_v3", "mamba", "lfm2")
    for variant in ("ov-stateless", "ov-stateful")
] + [(model, "ov-stateless") for model in ("granitemoehybrid", "qwen3_next", "t5", "whisper")]
ONNX = [
    *((model, "onnx") for model in ("llama", "gpt2", "qwen3", "gemma3_text", "qwen3_moe", "deepseek_v3", "llama_12l")),
    *((model, "onnx-genai") for model in ("llama", "qwen3", "lfm2")),
    ("mamba", "onnx-raw"),
]


def source_of(model, variant):
    decoder = "/openvino_decoder_with_past_model.xml" if model in {"t5", "whisper"} else ""
    return exported(f"{model}/{variant}{decoder}")


def told(inventory: Inventory):
    """What must not depend on what is known of the shapes."""
    caches = [dataclasses.replace(cache, shape=None, evidence=()) for cache in inventory.caches]
    blocks = [(block.node, block.key, block.value) for block in inventory.attention]
    return inventory.kind, caches, blocks, inventory.unpaired_inputs, inventory.unpaired_outputs


def with_shapes(model: OpenVINOModel, size_of) -> OpenVINOModel:
    """``model`` with each dimension of its inputs as ``size_of(input name, axis, dimension)`` says."""
    changed = model.clone()
    shapes = {}
    for port in changed.ov_model.inputs:
        dimensions = list(port.partial_shape)
        name = port.get_any_name()
        shapes[name] = openvino.PartialShape(
            [size_of(name, axis, -1 if size.is_dynamic else size.get_length()) for axis, size in enumerate(dimensions)]
        )
    changed.ov_model.reshape(shapes)
    changed.mark_edited()
    return changed


@pytest.mark.parametrize(("model", "variant"), IR)
def test_a_static_batch_in_ir(model, variant):
    source = source_of(model, variant)
    fixed = with_shapes(source, lambda name, axis, size: 1 if axis == 0 else size)
    assert told(graphpass.analyze_caches(fixed)) == told(graphpass.analyze_caches(source))


@pytest.mark.parametrize(("model", "variant"), [case for case in IR if case[1] == "ov-stateless"])
def test_only_the_rank_is_known_in_ir(model, variant):
    source = source_of(model, variant)
    unknown = with_shapes(source, lambda name, axis, size: -1)
    assert told(graphpass.analyze_caches(unknown)) == told(graphpass.analyze_caches(source))


def in_onnx(model: OnnxModel, change) -> OnnxModel:
    """``model`` with each dimension of its inputs, outputs and values changed by ``change(dimension, axis)``."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    for info in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        for axis, dimension in enumerate(info.type.tensor_type.shape.dim):
            change(dimension, axis)
    return OnnxModel(proto, model.path)


@pytest.mark.parametrize(("model", "variant"), ONNX)
def test_only_the_rank_is_known_in_onnx(model, variant):
    source = source_of(model, variant)
    unknown = in_onnx(source, lambda dimension, axis: dimension.Clear())
    assert told(graphpass.analyze_caches(unknown)) == told(graphpass.analyze_caches(source))


@pytest.mark.parametrize(("model", "variant"), ONNX)
def test_a_static_batch_in_onnx(model, variant):
    source = source_of(model, variant)

    def fix(dimension, axis):
        if dimension.dim_param in {"batch_size", "s36"}:
            dimension.dim_value = 1

    assert told(graphpass.analyze_caches(in_onnx(source, fix))) == told(graphpass.analyze_caches(source))


@pytest.mark.parametrize(("model", "variant"), [case for case in ONNX if case[1] == "onnx"])
def test_folding_by_onnxruntime_keeps_the_inventory(model, variant, tmp_path):
    source = source_of(model, variant)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(tmp_path / "folded.onnx")
    onnxruntime.InferenceSession(str(source.path), options, providers=["CPUExecutionProvider"])
    folded = graphpass.analyze_caches(graphpass.load(tmp_path / "folded.onnx"))
    expected = graphpass.analyze_caches(source)
    assert told(folded)[:2] == told(expected)[:2]
    assert all(block.key and block.value for block in folded.attention)


@pytest.mark.parametrize(("model", "variant"), IR)
def test_folding_by_openvino_keeps_the_inventory(model, variant):
    source = source_of(model, variant)
    folded = source.clone()
    passes = Manager()
    passes.register_pass(ConstantFolding())
    passes.run_passes(folded.ov_model)
    folded.mark_edited()
    assert told(graphpass.analyze_caches(folded)) == told(graphpass.analyze_caches(source))


def sequence_of(name: str, axis: int, size: int) -> int:
    """Three tokens after eight: NPU-style sizes of an input."""
    if axis == 0 or size != -1:
        return 1 if axis == 0 else size
    return {"attention_mask": 11, "input_ids": 3, "position_ids": 3, "decoder_input_ids": 3}.get(name, 8)


def single_token(name: str, axis: int, size: int) -> int:
    """All that is free is 1, as in a decode step of a model without a cache that grows."""
    return 1 if axis == 0 or size == -1 else size


@pytest.mark.parametrize(("model", "variant"), [case for case in IR if case[0] not in {"t5", "whisper"}])
def test_a_static_sequence_in_ir(model, variant):
    source = source_of(model, variant)
    sizes = single_token if model == "mamba" else sequence_of
    assert told(graphpass.analyze_caches(with_shapes(source, sizes))) == told(graphpass.analyze_caches(source))


@pytest.mark.parametrize(("model", "variant"), ONNX)
def test_a_static_sequence_in_onnx(model, variant):
    source = source_of(model, variant)
    kinds = {cache.read: cache for cache in graphpass.analyze_caches(source).of_kind("kv")}
    changed = onnx.ModelProto()
    changed.CopyFrom(source.proto)
    for info in changed.graph.input:
        for axis, dimension in enumerate(info.type.tensor_type.shape.dim):
            is_cache = info.name in kinds and axis == kinds[info.name].axes.sequence
            if dimension.dim_param:
                dimension.dim_value = 8 if is_cache else sequence_of(info.name, axis, -1)
    del changed.graph.value_info[:]
    for info in changed.graph.output:
        info.type.tensor_type.ClearField("shape")
    assert told(graphpass.analyze_caches(OnnxModel(changed, source.path))) == told(graphpass.analyze_caches(source))
