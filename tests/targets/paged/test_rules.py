"""Models with one thing wrong: the rules of paged attention name it, and the transformation does as they predict."""

from __future__ import annotations

import pytest
from openvino import opset13
from support.indexer_graphs import indexed_layer
from support.loaded import openvino_model, run_once
from support.models import exporters, hybrids
from targets import state_mutants

import graphpass
import graphpass.testing
from graphpass.engine.pipeline import format_passes
from graphpass.targets import check_model
from graphpass.verify.structure.proof import compare_structures


def failing(model):
    report = check_model(model, "paged")
    assert report.confirmation.outcome == "confirmed", report.confirmation.contradictions
    return [finding for finding in report.findings if not finding.holds]


def reordered(model):
    return graphpass.PassManager(graphpass.parse("insert-reorder")).run(model).model


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "mutate",
    [
        state_mutants.without_gather,
        state_mutants.with_slice,
        state_mutants.with_convert,
        state_mutants.with_present,
        state_mutants.with_mask_in_logits,
        reordered,
    ],
)
def test_other_forms_are_refused(mutate):
    assert "refused" in {finding.verdict for finding in failing(mutate(openvino_model("llama")))}


def test_variables_without_initial_value_are_refused():
    found = failing(state_mutants.without_initializer(openvino_model("llama", "ov-stateless")))
    assert "refused" in {finding.verdict for finding in found}


def test_decomposed_attention_is_named_with_the_cause():
    model = graphpass.testing.tiny_model("gemma2", "stateful", layers=1)
    (found,) = failing(model)
    assert (found.subject, found.verdict) == ("attention", "refused")
    assert "soft-capped" in found.reason


def test_keys_of_an_indexer_are_refused():
    stateful = graphpass.PassManager(graphpass.parse("expose-position-ids{always=true},make-stateful"))
    found = failing(stateful.run(indexed_layer("positions")).model)
    caches = [finding for finding in found if finding.subject == "cache"]
    assert [finding.name for finding in caches] == ["past_key_values.0.indexerpresent.0.indexer"]
    assert "neither as key nor as value" in caches[0].reason


def test_a_rolled_window_is_not_found():
    found = failing(openvino_model("zamba2"))
    assert {finding.verdict for finding in found} == {"refused"}
    windows = [finding for finding in found if ".conv." in finding.name]
    assert len(windows) == 3
    assert all("roll" in str(finding.reason) for finding in windows)


def of_torchscript(*left_out):
    """Return the stateful hybrid of PyTorch's exporter, made without some passes of the target."""
    model = graphpass.load(hybrids() / "qwen3_next_dense" / "onnx-raw")
    passes = [one for one in graphpass.get_target("paged").pipeline(model) if one.name not in left_out]
    return graphpass.PassManager(passes).run(model).model


def test_gated_delta_nets_are_found():
    assert failing(of_torchscript()) == []


def test_decays_of_rows_are_not_found():
    model = graphpass.load(exporters("transformers-onnx", "kimi_linear"))
    found = failing(graphpass.PassManager(graphpass.get_target("paged").pipeline(model)).run(model).model)
    assert {finding.verdict for finding in found} == {"refused"}
    assert all("rows of the state have different decays" in str(finding.reason) for finding in found)


@pytest.mark.slow
def test_a_recurrence_in_another_loop_is_not_found():
    found = failing(of_torchscript("fuse-gated-delta-net"))
    assert {finding.verdict for finding in found} == {"refused"}
    assert all("only loops of a selective SSM" in str(finding.reason) for finding in found)


def test_all_tokens_get_one_position():
    (found,) = failing(openvino_model("granitemoehybrid"))
    assert (found.verdict, found.name, found.node) == ("wrong", "position_ids", "__module.model/aten::add/Add")


def of_one_row(row):
    """A decoder with a batch of one, whose Reshapes name the batch as ``row``."""
    model = openvino_model("llama").clone()
    model.ov_model.reshape({"input_ids": [1, -1], "attention_mask": [1, -1], "position_ids": [1, -1], "beam_idx": [1]})
    for op in model.ov_model.get_ops():
        sizes = list(op.get_output_partial_shape(0))[2:] if op.get_type_name() == "Reshape" else []
        if len(sizes) == 2 and all(size.is_static for size in sizes):  # hidden states to heads
            shape = [row, -1, *(size.get_length() for size in sizes)]
            op.input(1).replace_source_output(opset13.constant(shape).output(0))
    model.ov_model.validate_nodes_and_infer_types()
    model.mark_edited()
    return model


@pytest.mark.parametrize(("row", "verdicts"), [(1, {"refused"}), (0, set())])
def test_reshapes_to_one_row_are_refused(row, verdicts):
    """Each token becomes a row; the plugin failed at the first prompt."""
    found = [finding for finding in check_model(of_one_row(row), "paged").findings if not finding.holds]
    assert {finding.verdict for finding in found} == verdicts
    assert all("export a dynamic batch" in finding.reason for finding in found)


def test_rows_and_tokens_are_copied_for_one_row():
    model, passes = of_one_row(1), "reshape-by-constants{rows=true}"
    assert passes in format_passes(graphpass.get_target("paged").pipeline(model)).split(",")
    result = run_once(model, passes).model
    assert all(finding.holds for finding in check_model(result, "paged").findings)
    assert compare_structures(model, result).is_complete
