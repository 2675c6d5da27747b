"""Caches of rounded numbers against caches that are rounded in each step."""

from __future__ import annotations

import pytest
from support.loaded import openvino_model
from support.pipelines import run_passes
from support.rounded_keys import rounded, with_rounded_keys

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.passes.caches.quantize_before_append import QuantizeBeforeAppend
from graphpass.verify.structure.proof import compare_structures


def rounded_once(reference: OpenVINOModel) -> OpenVINOModel:
    return run_passes(reference, QuantizeBeforeAppend())[0]


@pytest.mark.parametrize("transposed", [False, True])
def test_rounded_caches_are_equal(transposed):
    reference = with_rounded_keys(transposed=transposed)
    proof = compare_structures(reference, rounded_once(reference))
    assert proof is not None
    assert (proof.equal, proof.regions) == (proof.operators, ())


def test_another_range_is_not_equal():
    """New keys are rounded in steps of 6/255, those of the reference in steps of 6.2/255."""
    candidate = rounded_once(with_rounded_keys()).clone()
    for op in candidate.ov_model.get_ordered_ops():
        if op.get_type_name() == "FakeQuantize":
            (reader,) = op.output(0).get_target_inputs()
            reader.replace_source_output(rounded(op.input_value(0), ends=(-3.1, 3.1)))
    candidate.ov_model.validate_nodes_and_infer_types()
    candidate.mark_edited()
    proof = compare_structures(with_rounded_keys(), candidate)
    assert proof is not None
    assert proof.unpadded < proof.operators


def test_unrounded_caches_are_not_equal():
    proof = compare_structures(with_rounded_keys(), openvino_model("llama", "ov-stateful"))
    assert proof is not None
    assert proof.unpadded < proof.operators
