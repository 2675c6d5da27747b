"""batch-experts: one product of all experts, the same numbers, and the kernel that optimum's export gets."""

from __future__ import annotations

import numpy
import onnx
import openvino
import pytest
from onnx import helper, numpy_helper
from openvino import opset13
from support import loaded
from support.compressed_weights import with_dequantize_linear
from support.decode import compiled, executed, greedy
from support.loaded import exported
from support.models import export, reference

import graphpass
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.passes.convert.change_precision import ChangePrecision
from graphpass.passes.convert.to_openvino import ToOpenVINO
from graphpass.passes.experts.batch_experts import BatchExperts
from graphpass.verify import compare

LAYERS, EXPERTS, INNER = 2, 4, 32


def converted() -> OpenVINOModel:
    result = loaded.converted(exported("qwen3_moe/onnx")).model
    assert isinstance(result, OpenVINOModel)
    return result


def proto() -> onnx.ModelProto:
    return onnx.load(export("qwen3_moe", "onnx") / "model.onnx")


def joined(model: onnx.ModelProto, statistics: dict[str, int] | None = None) -> OpenVINOModel:
    """The model in IR, in which as much was joined as is said, or nothing."""
    result = PassManager([ToOpenVINO(), ChangePrecision(), BatchExperts()]).run(OnnxModel(model))
    done = result.records[-1].result
    if statistics is None:
        assert not done.changed
    else:
        assert done.changed
        assert done.statistics == statistics
    assert isinstance(result.model, OpenVINOModel)
    return result.model


ALL = {"layers": LAYERS, "experts batched": LAYERS * EXPERTS}


def test_searches_for_tokens_are_gone():
    kinds = [op.get_type_name() for op in converted().ov_model.get_ops()]
    assert "NonZero" not in kinds
    assert "OneHot" not in kinds


def test_the_plugin_computes_the_chosen_experts_alone():
    theirs = openvino.Core().read_model(export("qwen3_moe", "ov-stateful") / "openvino_model.xml")
    ours = executed(compiled(converted().ov_model))
    assert ours["GatherMatmul"] == executed(compiled(theirs))["GatherMatmul"] == 3 * LAYERS


def test_generates_the_reference_tokens():
    expected = reference("qwen3_moe")
    request = compiled(converted().ov_model).create_infer_request()
    prompts = [expected["prompt_ids"], [17, 4, *expected["prompt_ids"]]]
    assert greedy(request, prompts, 12)[0] == expected["greedy_ids"]


def test_weights_are_not_written_again(tmp_path):
    """The stored weights are those of the input, one by one."""
    graphpass.save(converted(), tmp_path / "openvino_model.xml")
    sizes = [len(tensor.raw_data) for tensor in proto().graph.initializer]
    assert (tmp_path / "openvino_model.bin").stat().st_size < 1.1 * sum(sizes)


def test_a_second_run_changes_nothing():
    assert not PassManager([BatchExperts()]).run(converted()).records[0].result.changed


def test_experts_are_recognized_by_their_number():
    """The loop takes them in another order than they are numbered in."""
    model = proto()
    made = {node.output[0]: node for node in model.graph.node}
    chosen = [node for node in model.graph.node if node.op_type == "Gather" and "mlp/Transpose" in node.input[0]]
    assert len(chosen) == LAYERS * EXPERTS
    for layer in range(LAYERS):
        first, *_, last = (node for node in chosen if f"layers.{layer}/" in node.name)
        assert {made[node.input[1]].op_type for node in (first, last)} == {"Constant"}
        first.input[1], last.input[1] = last.input[1], first.input[1]
    assert compare(OnnxModel(model), joined(model, ALL), steps=3).passed


def test_biases_are_joined_too():
    model = proto()
    random = numpy.random.default_rng(0)
    for node in list(model.graph.node):
        if not node.name.endswith("gate_proj/MatMul"):
            continue
        bias = numpy_helper.from_array(random.standard_normal(INNER).astype(numpy.float32), f"{node.name}/bias")
        model.graph.initializer.append(bias)
        output = node.output[0]
        node.output[0] = f"{output}/plain"
        added = helper.make_node("Add", [f"{output}/plain", bias.name], [output], f"{node.name}/Add")
        model.graph.node.insert(list(model.graph.node).index(node) + 1, added)
    assert compare(OnnxModel(model), joined(model, ALL), steps=3).passed


def change(model: onnx.ModelProto, name: str, op: str) -> None:
    """Let the nodes whose names end in ``name`` compute something else."""
    changed = [node for node in model.graph.node if node.name.endswith(name)]
    assert changed
    for node in changed:
        node.op_type = op


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("experts.2/act_fn/Sigmoid", "Tanh"),  # an expert of its own kind
        ("experts.1/act_fn/Sigmoid", "Softmax"),  # not each value by itself
    ],
)
def test_other_mixtures_are_unchanged(name, op):
    model = proto()
    change(model, name, op)
    if op == "Softmax":
        for number in (0, 2, 3):
            change(model, f"experts.{number}/act_fn/Sigmoid", op)
    assert compare(OnnxModel(model), joined(model), steps=2).passed


def test_leaves_compressed_weights(tmp_path):
    """Joined, they would have to be widened at every step."""
    file = with_dequantize_linear(export("qwen3_moe", "onnx") / "model.onnx", tmp_path / "in", "int8", blocks=True)
    joined(onnx.load(file))


def on_the_cpu(variant: str) -> OpenVINOModel:
    """A model that finds tokens by axes of [tokens, k], and may add experts up by the scatter itself."""
    result = loaded.converted(exported(f"deepseek_v3/{variant}")).model
    assert isinstance(result, OpenVINOModel)
    return result


@pytest.mark.parametrize("variant", ["onnx", "ov-stateless"])
class TestTokensFoundOnTheOtherAxis:
    def test_the_plugin_computes_the_chosen_experts_alone(self, variant):
        assert executed(compiled(on_the_cpu(variant).ov_model))["GatherMatmul"] == 3

    def test_generates_the_reference_tokens(self, variant):
        expected = reference("deepseek_v3")
        request = compiled(on_the_cpu(variant).ov_model).create_infer_request()
        prompts = [expected["prompt_ids"], [17, 4, *expected["prompt_ids"]]]
        assert greedy(request, prompts, 12)[0] == expected["greedy_ids"]


def change_first_expert(named: dict[str, openvino.Node], change: str) -> None:
    """Let the first expert of deepseek take or give other rows than were routed to it."""
    prefix = "__module.model.layers.1.mlp/aten::"
    if change == "slot for token":
        split = named[f"{prefix}where/Split"]
        readers = [list(output.get_target_inputs()) for output in split.outputs()]
        for output, old in zip(reversed(split.outputs()), readers, strict=True):
            for reader in old:
                reader.replace_source_output(output)
    elif change == "other weight":
        place = named[f"{prefix}index/Multiply"]
        place.input(1).replace_source_output(opset13.constant([1], dtype=openvino.Type.i32).output(0))
    else:
        scatter = named[f"{prefix}index_add_/ScatterElementsUpdate_2"]
        one = opset13.broadcast(
            opset13.constant(1.0, dtype=openvino.Type.f32), opset13.shape_of(scatter.input_value(0))
        )
        scatter.input(0).replace_source_output(one.output(0))


@pytest.mark.parametrize("change", ["slot for token", "other weight", "sum that starts at 1"])
def test_experts_with_different_routing_stay(change):
    model = openvino.Core().read_model(export("deepseek_v3", "ov-stateless") / "openvino_model.xml")
    change_first_expert({op.get_friendly_name(): op for op in model.get_ops()}, change)
    assert not PassManager([BatchExperts()]).run(OpenVINOModel(model)).records[0].result.changed
