"""Attention and MultiHeadAttention as expressions: equal to what they become; faults are not equal."""

from __future__ import annotations

from typing import Any

import pytest
from onnx import NodeProto, helper
from support.loaded import converted
from support.models import exporters

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.io import load
from graphpass.verify.structure.proof import compare_structures
from graphpass.verify.structure_proof import StructureProof


def proof_of(reference: OnnxModel, candidate: Any) -> StructureProof:
    found = compare_structures(reference, candidate)
    assert found is not None
    return found


def with_attribute(name: str, value: float) -> Any:
    def edit(node: NodeProto) -> None:
        kept = [attribute for attribute in node.attribute if attribute.name != name]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute(name, value)])

    return edit


def without_mask(node: NodeProto) -> None:
    node.input[3] = ""


def edited(model: OnnxModel, op: str, edit: Any) -> OnnxModel:
    """Return a copy whose first operator ``op`` is edited."""
    copy = model.clone()
    edit(next(node for node in copy.proto.graph.node if node.op_type == op))
    return OnnxModel(copy.proto, model.path)


@pytest.mark.parametrize(("family", "target"), [("llama", "cpu"), ("llama", "ort"), ("qwen3_5_text", "ort")])
def test_attention_is_equal_to_its_lowered_form(family, target):
    reference = load(exporters("mobius", family))
    found = proof_of(reference, converted(reference, target).model)
    assert found.equal == found.operators, found.regions


@pytest.mark.parametrize(
    "edit",
    [with_attribute("scale", 0.5), with_attribute("softcap", 5.0), with_attribute("q_num_heads", 2), without_mask],
    ids=["scale", "softcap", "heads", "mask"],
)
def test_another_attention_is_not_equal(edit):
    reference = load(exporters("mobius", "llama"))
    found = proof_of(edited(reference, "Attention", edit), converted(reference, "cpu").model)
    assert found.equal < found.operators


def test_multi_head_attention():
    reference = load(exporters("encoders", "bert"))
    made = converted(reference, "ort").model
    found = proof_of(reference, made)
    assert found.equal == found.operators, found.regions
    for edit in (with_attribute("scale", 0.5), with_attribute("num_heads", 2)):
        found = proof_of(reference, edited(made, "MultiHeadAttention", edit))
        assert found.equal < found.operators


def without_norms(node: NodeProto) -> None:
    node.input[14] = node.input[15] = ""


def test_norms_inside_group_query_attention():
    reference = load(exporters("builder-webgpu", "qwen3"))
    found = proof_of(reference, converted(reference, "cpu").model)
    assert found.unpadded == found.operators, found.regions
    for edit in (without_norms, with_attribute("qk_norm_epsilon", 1e-3)):
        found = proof_of(reference, edited(reference, "GroupQueryAttention", edit))
        assert found.unpadded < found.operators
