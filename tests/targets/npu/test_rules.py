"""Models with one thing wrong: the rules of NPUW name it, and NPUW does as they predict."""

from __future__ import annotations

import numpy
import pytest
from openvino import opset13 as ops
from support.loaded import onnx_model, openvino_model
from support.maskless import maskless
from support.pipelines import run_passes
from targets import state_mutants

import graphpass
from graphpass.analysis.attention.rotary import positions_of_angles
from graphpass.passes.devices.reshape_results import ReshapeResults
from graphpass.passes.masks.expose_window import ExposeWindow
from graphpass.targets import check_model
from graphpass.testing import parse_model, run


def reordered(model):
    return graphpass.PassManager(graphpass.parse("insert-reorder")).run(model).model


def checked(model):
    report = check_model(model, "npu")
    assert report.confirmation.outcome == "confirmed", report.confirmation.contradictions
    return report


def failing(model):
    return [finding for finding in checked(model).findings if not finding.holds]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "mutate", [state_mutants.without_gather, state_mutants.with_slice, state_mutants.with_convert, reordered]
)
def test_other_forms_are_refused(mutate):
    assert "refused" in {finding.verdict for finding in failing(mutate(openvino_model("llama")))}


def test_the_expected_type_is_named():
    model = state_mutants.with_long_beam_index(openvino_model("llama"))
    (found,) = [finding for finding in check_model(model, "npu", confirm=False).findings if not finding.holds]
    assert (found.name, found.reason) == ("beam_idx", "it is i64, not i32")


def test_attention_mask_is_required():
    model = maskless()
    passes = [one for one in graphpass.get_target("npu").pipeline(model) if one.name != "add-attention-mask"]
    (found,) = failing(run(model, passes))
    assert (found.verdict, found.name) == ("refused", "attention_mask")
    assert "run add-attention-mask" in found.reason


@pytest.mark.parametrize(
    ("name", "text", "subject", "words"),
    [
        ("llama", "insert-reorder{form=cut}", "cache", "Slice is between"),
        ("llama", "insert-reorder{form=compact}", "input", "NPUW treats inputs"),
        ("lfm2", "insert-snapshot", "input", "NPUW treats inputs"),
    ],
)
def test_a_model_with_edit_inputs_is_refused_with_a_remedy(name, text, subject, words):
    found = failing(graphpass.PassManager(graphpass.parse(text)).run(openvino_model(name)).model)
    reasons = [finding.reason for finding in found if finding.subject == subject]
    assert reasons
    instead = "to undo steps, reset" if name == "lfm2" else "to undo steps, rewind a session"
    assert all(words in reason and instead in reason for reason in reasons)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_the_length_of_the_past_may_not_be_read_of_a_value(name):
    (found,) = failing(state_mutants.with_length_of_value(openvino_model(name)))
    assert (found.verdict, found.name) == ("refused", "past_key_values.0.valuepresent.0.value")
    assert "which NPUW transposes" in found.reason
    assert "run read-length-from-keys" in found.reason


def test_the_length_of_the_past_may_not_be_read_before_the_beam_index():
    (found,) = failing(state_mutants.with_length_of_variable(openvino_model("llama")))
    assert (found.verdict, found.name) == ("refused", "past_key_values.0.keypresent.0.key")
    assert "it reads the variable before the Gather by beam_idx" in found.reason


def test_sizes_of_repeated_values_are_rewritten():
    model = state_mutants.with_length_of_value_in_repeats(openvino_model("llama"))
    assert sum(node.op == "Subtract" for node in model.graph.nodes) > 1
    assert checked(model).holds


@pytest.mark.slow
def test_values_split_from_others_are_unchanged():
    made = graphpass.PassManager(graphpass.parse("batch-experts,densify-experts")).run(openvino_model("deepseek_v3"))
    assert checked(state_mutants.with_length_of_value(made.model)).holds


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutate", "verdicts"),
    [
        (state_mutants.with_places_laid_out_at_once, {"wrong"}),
        pytest.param(state_mutants.with_places_moved, set(), marks=pytest.mark.slow),
    ],
)
def test_windows_over_known_places_are_fixed(mutate, verdicts):
    """The second is the form of another matcher, sliding_window_mask.cpp."""
    model = mutate(openvino_model("gemma3_text"))
    found = failing(model)
    assert {finding.verdict for finding in found} == verdicts
    assert all("sliding window over slots" in finding.reason for finding in found)
    made, result = run_passes(model, ExposeWindow())
    assert result.changed
    assert result.statistics == {"windows exposed": 3, "masks": 1}
    assert checked(made).holds


def test_padding_in_a_state_is_predicted_wrong():
    found = failing(openvino_model("lfm2"))
    assert {finding.verdict for finding in found} == {"wrong"}
    assert [finding.name.split(".")[2] for finding in found] == ["conv", "conv"]
    assert all("absorbs the padding" in finding.reason for finding in found)


def test_a_product_before_a_state_is_mistaken_for_the_logits():
    """As exports write a recurrence over chunks of tokens: NPUW cuts the state's product off."""
    before = openvino_model("lfm2")
    model = graphpass.PassManager(graphpass.get_target("npu").pipeline(before)).run(before).model.clone()
    assign = next(sink for sink in model.ov_model.get_sinks() if "conv" in sink.get_variable_id())
    product = ops.matmul(assign.input_value(0), ops.constant(numpy.eye(3, dtype=numpy.float32)), False, False)
    assign.input(0).replace_source_output(product.output(0))
    model.mark_edited()
    assert any("for that of the logits: run reshape-results" in finding.reason for finding in failing(model))
    after, result = run_passes(model, ReshapeResults())
    assert result.statistics == {"results reshaped": 1}
    assert checked(after).holds
    assert not run_passes(after, ReshapeResults())[1].changed


EXPERTS = """%input_ids = Parameter : i64[b, n]
%table = Constant : f32[32, 16]
%hidden = Gather(%table, %input_ids, 0) : f32[b, n, 16]
%normed = MVN(%hidden, [2]) {normalize_variance=true, eps=0.00001, eps_mode=inside_sqrt} : f32[b, n, 16]
%rows = Reshape(%normed, [1, -1, 16]) {zero_keeps=false} : f32[1, ?, 16]
%tiled = Tile(%rows, [4, 1, 1]) : f32[4, ?, 16]
%weights = Constant : f32[COUNT, 16, 16]
%product = MatMul(%tiled, %weights) : f32[4, ?, 16]
Result(%product) {name=logits}
"""


@pytest.mark.parametrize(("count", "refused"), [(4, True), (1, False)])
def test_norms_beside_batched_experts_are_refused(count, refused):
    """As DBRX is after batch-experts; NPUW ends with undeclared parameters."""
    model = parse_model(EXPERTS.replace("COUNT", str(count)), "openvino")
    reasons = [finding.reason or "" for finding in check_model(model, "npu", confirm=False).findings]
    assert any("run lower-mvn" in reason for reason in reasons) == refused


@pytest.mark.parametrize("output", ["hidden states", "another product"])
def test_an_output_where_the_logits_are_cut_off_is_refused(output):
    """As onnxruntime-genai's builder writes hidden states: those that the product of the logits reads."""
    before = openvino_model("llama")
    model = graphpass.PassManager(graphpass.get_target("npu").pipeline(before)).run(before).model.clone()
    products = [node for node in model.ov_model.get_ordered_ops() if node.get_type_name() == "MatMul"]
    value = products[-1].input_value(0) if output == "hidden states" else products[0].output(0)
    value.set_names({"further"})
    model.ov_model.add_results([ops.result(value)])
    model.mark_edited()
    (found,) = failing(model)
    assert "at output further: run reshape-results" in found.reason
    after, result = run_passes(model, ReshapeResults())
    assert result.statistics == {"results reshaped": 1}
    assert checked(after).holds
    assert not run_passes(after, ReshapeResults())[1].changed


def test_a_model_without_logits_is_refused():
    model = openvino_model("llama").clone()
    (logits,) = model.ov_model.get_results()
    logits.output(0).set_names({"hidden"})
    logits.set_friendly_name("hidden/result")
    model.mark_edited()
    (found,) = [finding for finding in failing(model) if finding.subject == "model"]
    assert "it has no output logits, which NPUW reads" in found.reason


def test_token_sorting_experts_are_refused():
    found = failing(openvino_model("granitemoehybrid"))
    assert any("cannot be static" in finding.reason and "block_sparse_moe" in finding.node for finding in found)


def test_a_model_without_keys_and_values_is_refused():
    (found,) = [finding for finding in failing(openvino_model("mamba")) if finding.subject == "model"]
    assert "no keys and values" in found.reason


@pytest.mark.slow
def test_positions_not_replaced_by_the_plugin_are_refused():
    """Counted from the mask's length, as wrappers around PyTorch's models do; it knows a Range and an Add alone."""
    target = graphpass.get_target("npu")
    steps = [step for step in target.pipeline(openvino_model("lfm2")) if step.name != "expose-position-ids"]
    model = graphpass.PassManager(steps).run(openvino_model("lfm2")).model
    assert not failing(model)
    rewriter = model.rewriter()
    (angles,) = [node for node in positions_of_angles(model.graph) if node.op == "Range"]
    write = rewriter.under("counted")
    total = write.op("Squeeze", write.size(model.graph.parameters["attention_mask"], 1, "total"), 0)
    for use in model.graph.uses(angles.outputs[0]):
        moved = write.op("Add", angles.outputs[0], total)
        rewriter.redirect(use.node, use.port, write.op("Subtract", moved, total))
    rewriter.finish()
    model.mark_edited()
    assert [(one.name, one.verdict) for one in failing(model)] == [("position_ids", "refused")]


def test_a_bias_by_slots_of_decomposed_attention_is_wrong():
    original = onnx_model("gemma2")
    model = graphpass.PassManager(graphpass.get_target("npu").pipeline(original)).run(original).model
    assert not failing(model)
    rewriter = model.rewriter()
    softmax = next(iter(model.graph.of_op("Softmax")))
    write = rewriter.under("by slots")
    keys = write.op("Squeeze", write.size(softmax.source(), 3, "keys"), 0)
    bias = write.convert(write.op("Range", 0, keys, 1), "f32", "bias")
    rewriter.redirect(
        softmax, 0, write.op("Add", softmax.source(), write.op("Multiply", bias, write.number(0.25, "f32")))
    )
    rewriter.finish()
    model.mark_edited()
    (finding,) = failing(model)
    assert (finding.name, finding.verdict) == (softmax.name, "wrong")
    assert "depends on slots of the cache" in finding.reason
