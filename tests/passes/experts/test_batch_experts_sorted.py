"""batch-experts on tokens that are sorted by expert: one product of all experts, the same numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable

import openvino
import pytest
from openvino import opset13 as ops
from support.attention_graphs import integers
from support.decode import compiled, executed, greedy
from support.models import export, reference
from support.pipelines import run_passes

import graphpass
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.passes.experts.batch_experts import BatchExperts
from graphpass.targets.npu.rules import data_dependent

MODEL, LAYERS, EXPERTS = "granitemoehybrid", 4, 4

FIRST = "__module.model.layers.0.block_sparse_moe"


def exported() -> openvino.Model:
    return openvino.Core().read_model(export(MODEL, "ov-stateful") / "openvino_model.xml")


def run(model: openvino.Model) -> tuple[OpenVINOModel, object]:
    return run_passes(OpenVINOModel(model), BatchExperts())


@functools.cache
def joined() -> OpenVINOModel:
    model, result = run(exported())
    assert result.changed
    assert result.statistics == {"layers": LAYERS, "experts batched": LAYERS * EXPERTS}
    return model


def generated(model: openvino.Model) -> list[int]:
    """What it generates in a batch with a longer prompt, behind padding."""
    prompt = reference(MODEL)["prompt_ids"]
    return greedy(compiled(model).create_infer_request(), [prompt, [17, 4, *prompt]], 12)[0]


def test_no_size_depends_on_the_routing():
    assert data_dependent(OpenVINOModel(exported()).graph) is not None
    assert data_dependent(joined().graph) is None


def test_generates_the_reference_tokens():
    assert generated(joined().ov_model) == reference(MODEL)["greedy_ids"]


def test_the_plugin_computes_the_chosen_experts_alone():
    """The weight that gives gate and values at once is cut in two, as the plugin knows experts."""
    assert executed(compiled(joined().ov_model))["GatherMatmul"] == 3 * LAYERS


def test_weights_are_not_written_again(tmp_path):
    graphpass.save(joined(), tmp_path / "openvino_model.xml")
    before = (export(MODEL, "ov-stateful") / "openvino_model.bin").stat().st_size
    assert (tmp_path / "openvino_model.bin").stat().st_size < 1.1 * before


@pytest.mark.slow
def test_weights_in_half_precision_are_batched(tmp_path):
    openvino.save_model(exported(), tmp_path / "openvino_model.xml", compress_to_fp16=True)
    half = openvino.Core().read_model(tmp_path / "openvino_model.xml")
    expected = generated(half)
    model, result = run(half)
    assert result.changed
    assert generated(model.ov_model) == expected


def test_a_second_run_changes_nothing():
    assert not run(joined().ov_model.clone())[1].changed


def swap_pieces(nodes: dict[str, openvino.Node]) -> None:
    """The first two experts take each other's rows, but give their results in the old order."""
    first, second = (nodes[f"{FIRST}.input_linear/aten::slice/Slice{end}"] for end in ("", "_1"))
    for port in (1, 2):
        values = first.input_value(port), second.input_value(port)
        first.input(port).replace_source_output(values[1])
        second.input(port).replace_source_output(values[0])


def sort_downwards(nodes: dict[str, openvino.Node]) -> None:
    old = nodes[f"{FIRST}.router/aten::sort/TopK"]
    new = ops.topk(old.input_value(0), old.input_value(1), 0, "max", "value", "i64")
    for port in (0, 1):
        old.output(port).replace(new.output(port))


def add_to_other_tokens(nodes: dict[str, openvino.Node]) -> None:
    """Each row counts for the token after the next."""
    divide = nodes[f"{FIRST}.router/aten::div/Divide"]
    divide.input(1).replace_source_output(integers(4).output(0))


def count_from_one(nodes: dict[str, openvino.Node]) -> None:
    """Each expert is counted once more than it was chosen."""
    scatter = nodes[f"{FIRST}.router/aten::scatter/ScatterElementsUpdate"]
    one = ops.broadcast(ops.constant(1.0, dtype=openvino.Type.f32), ops.shape_of(scatter.input_value(0)))
    scatter.input(0).replace_source_output(one.output(0))


@pytest.mark.parametrize("change", [swap_pieces, sort_downwards, add_to_other_tokens, count_from_one])
def test_other_sums_are_unchanged(change: Callable[[dict[str, openvino.Node]], None]):
    model = exported()
    change({op.get_friendly_name(): op for op in model.get_ops()})
    _, result = run(model)
    assert result.changed
    assert result.statistics["layers"] == LAYERS - 1
