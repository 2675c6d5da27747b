"""Models with one thing wrong: the rules of the CPU plugin name it, and the plugin does as they predict."""

from __future__ import annotations

import pytest
from onnxruntime.quantization import QuantType
from support.loaded import openvino_model
from support.static_scales import in_static_int8
from targets import state_mutants

import graphpass
from graphpass.targets import check_model


def reordered(model):
    return graphpass.PassManager(graphpass.parse("insert-reorder")).run(model).model


#: A word of the reason for which the plugin does not fuse each.
BROKEN = {
    state_mutants.without_gather: "no Gather",
    state_mutants.with_slice: "got Slice",
    state_mutants.with_convert: "got Convert",
    state_mutants.with_present: "not only attention reads the cache",
    state_mutants.with_long_beam_index: "i64, not i32",
    state_mutants.with_axes_written_apart: "equal axis attributes",
    reordered: "expected a Gather between",
}


def failing(model):
    report = check_model(model, "cpu")
    assert not report.holds
    assert report.confirmation.outcome == "confirmed", report.confirmation.contradictions
    return [finding for finding in report.findings if not finding.holds]


@pytest.mark.parametrize("mutate", BROKEN)
def test_other_forms_are_not_fused(mutate):
    found = failing(mutate(openvino_model("llama")))
    assert {finding.verdict for finding in found} == {"not fused"}
    assert all(BROKEN[mutate] in finding.reason and finding.node and finding.source for finding in found)


def test_variables_without_initial_value_are_refused():
    found = failing(state_mutants.without_initializer(openvino_model("llama", "ov-stateless")))
    assert {finding.verdict for finding in found} == {"refused"}
    assert all("no initial value" in finding.reason and finding.node and finding.source for finding in found)


@pytest.mark.parametrize("target", ["cpu", "gpu", "npu", "paged"])
def test_quantizers_of_16_bits_are_dropped(tmp_path, target):
    file = in_static_int8(tmp_path, ("self_attn/MatMul", "rotary", "lm_head"), QuantType.QUInt16)
    model = graphpass.load(file)
    made = graphpass.PassManager(graphpass.get_target(target).pipeline(model)).run(model).model
    (found,) = [one for one in check_model(made, target, confirm=False).findings if not one.holds]
    assert found.verdict == "wrong"
    assert "rounds to 16 bits" in found.reason
