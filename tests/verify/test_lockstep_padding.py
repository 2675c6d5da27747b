"""Left padding that the reference itself cannot take."""

from __future__ import annotations

import openvino
import pytest
from openvino import opset13 as ops
from support.loaded import openvino_model
from support.longrope import with_two_tables

from graphpass.engine.manager import PassManager
from graphpass.ir.model import Model
from graphpass.targets.paged.target import Paged
from graphpass.verify import compare


def boolean_masks(model: Model) -> Model:
    """The model with boolean attention masks: the CPU plugin's unfused attention gives NaN for rows masked whole."""
    spoilt = model.clone()
    native: openvino.Model = spoilt.ov_model  # type: ignore[attr-defined]
    for node in native.get_ops():
        if node.get_type_name() == "ScaledDotProductAttention":
            visible = ops.greater(node.input_value(3), ops.constant(-1.0, dtype=openvino.Type.f32))
            node.input(3).replace_source_output(visible.output(0))
    native.validate_nodes_and_infer_types()
    spoilt.mark_edited()
    return spoilt


@pytest.fixture
def model() -> Model:
    return openvino_model("llama", "ov-stateless")


def test_a_reference_computing_nan_is_compared_without_padding(model: Model) -> None:
    found = compare(boolean_masks(model), model, steps=2)
    assert found.passed
    assert found.skipped == ("left padding: the reference computes NaN after it",)
    assert len(found.sequences) == 5


def test_a_candidate_computing_nan_fails(model: Model) -> None:
    found = compare(model, boolean_masks(model), steps=2)
    assert not found.passed
    assert found.divergence is not None
    assert found.divergence.sequence == 2


def test_positions_count_padding_as_the_reference_does() -> None:
    """Keys before and after the change have other frequencies, so that rows alone have other results."""
    model = with_two_tables(13)
    result = PassManager(Paged().pipeline(model)).run(model).model
    found = compare(model, result, steps=4)
    assert found.passed
    assert any("because it counts padding in positions" in line for line in found.skipped)
    wrong = PassManager(Paged().pipeline(with_two_tables(14))).run(with_two_tables(14)).model
    assert not compare(model, wrong, steps=4).passed
