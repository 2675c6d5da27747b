"""Attention and MultiHeadAttention as expressions: equal to what they become; faults are not equal."""

from __future__ import annotations

import pytest
from onnx import NodeProto
from support.loaded import converted
from support.models import exporters
from verify.structure.edited_operators import edited, proof_of, with_attribute

from graphpass.io import load


def without_mask(node: NodeProto) -> None:
    node.input[3] = ""


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
