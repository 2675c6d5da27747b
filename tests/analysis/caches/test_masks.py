"""Effective masks of attention: known for every step, in all fixtures."""

from __future__ import annotations

import json

import numpy
import onnx
import pytest
from golden import masks
from support.loaded import exported
from support.models import dynamo, fixtures, hybrids, steps, vision
from support.quick_cases import model_files

import graphpass
from graphpass.analysis.caches.masks import find_masks
from graphpass.analysis.symbolic.text import expression_text
from graphpass.ir.bodies import inlined

OTHERS = {
    **{f"dynamo {name}": lambda name=name: next(dynamo(name).glob("onnx-*")) for name in ("mistral", "gemma3_text")},
    **{f"steps {name}": lambda name=name: steps() / name / "ov-step" for name in ("jamba", "falcon_h1")},
    **{f"vision {name}": lambda name=name: vision(name) for name in ("llava",)},
    "hybrids": lambda: hybrids() / "qwen3_next_dense" / "onnx-raw",
}


@pytest.mark.parametrize("path", model_files())
def test_masks_of_fixtures_are_known(path):
    for mask in inlined(exported(path)).analysis(find_masks):
        # Ranks in branches of merged decoders are not declared.
        assert mask.misses == () or "merged" in path
        assert mask.residue == ()


@pytest.mark.slow
def test_masks_of_fixtures_are_as_recorded():
    kept = json.loads(masks.RESULTS.read_text())
    assert {name: masks.row(fixtures() / name) for name in model_files()} == kept["fixtures"]
    rows = [row for group in kept.values() for row in group.values() if row]
    assert sum(row["known"] for row in rows) >= 0.95 * sum(row["attention"] for row in rows)


@pytest.mark.parametrize("name", OTHERS)
def test_masks_of_other_exporters_are_known(name):
    for mask in inlined(graphpass.load(OTHERS[name]())).analysis(find_masks):
        assert mask.misses == ()


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("llama/onnx", {"k <= past + q", "attention_mask[b, k]"}),
        ("llama/ov-stateful", {"k <= past + q", "attention_mask[b, k]"}),
        ("mistral_sw8/onnx", {"k <= past + q", "past + q <= 7 + k", "attention_mask[b, k]"}),
        ("bloom/onnx", {"k <= past + q", "attention_mask[b, k]"}),
        ("olmo2/ov-stateless", {"k <= past + q", "attention_mask[b, k]"}),
    ],
)
def test_masks_are_printed_in_the_notation_of_papers(path, words):
    mask = inlined(exported(path)).analysis(find_masks)[0]
    assert {expression_text(part) for part in mask.visible.args} == words


def test_layers_share_a_mask():
    masks = inlined(exported("llama_12l/onnx")).analysis(find_masks)
    assert len({mask.visible for mask in masks}) == 1


@pytest.mark.parametrize("op", ["Where", "Reshape"])
def test_long_chains_are_a_miss_and_no_hang(op):
    """Chain 10,000 operators between a mask and the scores that it is added to."""
    from graphpass.dialects.onnx.model import OnnxModel

    helper, count, nodes, last = onnx.helper, 10_000, [], "mask"
    for number in range(count):
        inputs = ["flag", last, "other"] if op == "Where" else [last, "shape"]
        nodes.append(helper.make_node(op, inputs, [f"value {number}"], f"{op} {number}"))
        last = f"value {number}"
    nodes += [
        helper.make_node("MatMul", ["query", "key"], ["product"]),
        helper.make_node("Add", ["product", last], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "value"], ["result"]),
    ]

    def info(name, shape, kind=onnx.TensorProto.FLOAT):
        return helper.make_tensor_value_info(name, kind, shape)

    graph = helper.make_graph(
        nodes,
        "chain",
        [
            info("query", ["b", 2, "q", 8]),
            info("key", ["b", 2, 8, "k"]),
            info("value", ["b", 2, "k", 8]),
            info("mask", ["b", 1, "q", "k"]),
            info("other", ["b", 1, "q", "k"]),
            info("flag", ["b", 1, "q", "k"], onnx.TensorProto.BOOL),
        ],
        [info("result", ["b", 2, "q", 8])],
        [onnx.numpy_helper.from_array(numpy.array([0, 0, -1, 0], "int64"), "shape")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    (mask,) = OnnxModel(onnx.shape_inference.infer_shapes(proto)).analysis(find_masks)
    assert [miss.reason for miss in mask.misses] in ([], ["it depends on more than 4000 elements"])
    assert mask.misses or op == "Reshape"
