"""Models with one thing wrong: it is named, and each runtime does what was predicted."""

from __future__ import annotations

import numpy
import pytest
from openvino import opset13 as ops
from support import state_mutants
from support.loaded import onnx_model, openvino_model
from support.piped import piped

import graphpass
from graphpass.engine.findings import Finding, Observation, compare
from graphpass.engine.passes import Changed
from graphpass.errors import UsageError
from graphpass.ir.ports import MASKED
from graphpass.passes.masks.expose_window import ExposeWindow
from graphpass.targets import check_model


def reordered(model):
    return graphpass.PassManager(graphpass.parse("insert-reorder")).run(model).model


#: What is wrong, the verdict of the cpu, paged and npu targets, and a word of the reason on the CPU.
BROKEN = {
    state_mutants.without_gather: ("not fused", "no Gather"),
    state_mutants.with_slice: ("not fused", "Slice stands between"),
    state_mutants.with_convert: ("not fused", "Convert stands between"),
    state_mutants.with_present: ("not fused", "not only attention reads the cache"),
    state_mutants.with_long_beam_index: ("not fused", "i64, not i32"),
    state_mutants.with_axes_written_apart: ("not fused", "along different axes"),
    state_mutants.without_initializer: ("refused", "no initial value"),
    reordered: ("not fused", "stands between"),
}

#: What only the CPU plugin minds.
ONLY_FOR_THE_CPU = {state_mutants.with_long_beam_index, state_mutants.with_axes_written_apart}


def broken(mutate):
    variant = "ov-stateless" if mutate is state_mutants.without_initializer else "ov-stateful"
    return mutate(openvino_model("llama", variant))


@pytest.mark.parametrize("mutate", BROKEN)
def test_the_cpu_plugin_does_not_fuse_it(mutate):
    verdict, words = BROKEN[mutate]
    report = check_model(broken(mutate), "cpu")
    assert not report.holds
    assert report.confirmation.outcome == "confirmed", report.confirmation.contradictions
    failing = [finding for finding in report.findings if not finding.holds]
    assert {finding.verdict for finding in failing} == {verdict}
    assert all(words in finding.reason and finding.node and finding.source for finding in failing)


@pytest.mark.parametrize("mutate", [mutate for mutate in BROKEN if mutate not in ONLY_FOR_THE_CPU])
def test_paged_attention_refuses_it(mutate):
    report = check_model(broken(mutate), "paged")
    assert "refused" in {finding.verdict for finding in report.findings}
    assert report.confirmation.outcome == "confirmed", report.confirmation.contradictions


@pytest.mark.parametrize(
    "mutate", [state_mutants.without_gather, state_mutants.with_slice, state_mutants.with_convert, reordered]
)
def test_npuw_refuses_it(mutate):
    report = check_model(broken(mutate), "npu")
    assert "refused" in {finding.verdict for finding in report.findings}
    assert report.confirmation.outcome == "confirmed", report.confirmation.contradictions


@pytest.mark.parametrize(
    ("name", "text", "subject", "words"),
    [
        ("llama", "insert-trim", "cache", "Slice stands between"),
        ("llama", "insert-reorder{form=compact}", "input", "taken for a cache"),
        ("lfm2", "insert-snapshot", "input", "taken for a cache"),
    ],
)
def test_npuw_refuses_what_edits_caches_and_is_told_what_to_do_instead(name, text, subject, words):
    report = check_model(graphpass.PassManager(graphpass.parse(text)).run(openvino_model(name)).model, "npu")
    assert report.confirmation.outcome == "confirmed", report.confirmation.contradictions
    reasons = [finding.reason for finding in report.findings if (finding.subject, finding.holds) == (subject, False)]
    assert reasons
    instead = "to go back, start again" if name == "lfm2" else "to go back, feed position_ids"
    assert all(words in reason and instead in reason for reason in reasons)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_npuw_refuses_to_have_the_length_of_the_past_read_of_a_value(name):
    report = check_model(state_mutants.with_length_of_value(openvino_model(name)), "npu")
    assert report.confirmation.outcome == "confirmed", report.confirmation.contradictions
    (found,) = [finding for finding in report.findings if not finding.holds]
    assert (found.verdict, found.name) == ("refused", "past_key_values.0.valuepresent.0.value")
    assert "transposes values" in found.reason
    assert "run measure-keys" in found.reason


def test_npuw_writes_anew_what_values_are_repeated_to():
    model = state_mutants.with_length_of_value_in_repeats(openvino_model("llama"))
    assert sum(node.op == "Subtract" for node in model.graph.nodes) > 1
    report = check_model(model, "npu")
    assert report.holds, report.findings
    assert report.confirmation.outcome == "confirmed", report.confirmation.contradictions


def test_npuw_leaves_values_that_are_split_from_others_as_they_are():
    made = graphpass.PassManager(graphpass.parse("join-experts,compute-all-experts")).run(openvino_model("deepseek_v3"))
    report = check_model(state_mutants.with_length_of_value(made.model), "npu")
    assert report.holds, report.findings
    assert report.confirmation.outcome == "confirmed", report.confirmation.contradictions


def failing(model, variant, target):
    report = check_model(openvino_model(model, variant), target)
    assert report.confirmation.outcome == "confirmed", report.confirmation.contradictions
    return [finding for finding in report.findings if not finding.holds]


@pytest.mark.parametrize(
    ("mutate", "verdicts"),
    [
        (state_mutants.with_places_laid_out_at_once, {"wrong"}),
        pytest.param(state_mutants.with_places_moved, set(), marks=pytest.mark.slow),
    ],
)
def test_npuw_mends_windows_over_places_that_it_knows(mutate, verdicts):
    """The second is the form of another matcher, sliding_window_mask.cpp."""
    model = mutate(openvino_model("gemma3_text"))
    report = check_model(model, "npu")
    assert report.confirmation.outcome == "confirmed", report.confirmation.contradictions
    found = [finding for finding in report.findings if not finding.holds]
    assert {finding.verdict for finding in found} == verdicts
    assert all("sliding window over slots" in finding.reason for finding in found)
    made, result = piped(model, ExposeWindow())
    assert isinstance(result, Changed)
    assert result.statistics["places counted"] == 2
    report = check_model(made, "npu")
    assert report.holds, report.findings
    assert report.confirmation.outcome == "confirmed", report.confirmation.contradictions


def test_npuw_gives_wrong_numbers_where_padding_enters_a_state():
    found = failing("lfm2", "ov-stateful", "npu")
    assert {finding.verdict for finding in found} == {"wrong"}
    assert [finding.name.split(".")[2] for finding in found] == ["conv", "conv"]
    assert all("absorbs the padding" in finding.reason for finding in found)


def test_npuw_refuses_experts_that_sort_tokens():
    found = failing("granitemoehybrid", "ov-stateful", "npu")
    assert any("no static shape" in finding.reason and "block_sparse_moe" in finding.node for finding in found)


def test_paged_attention_finds_no_window_that_is_rolled():
    found = failing("zamba2", "ov-stateful", "paged")
    assert {finding.verdict for finding in found} == {"refused"}
    assert all("Roll" in str(finding.node) or "roll" in str(finding.reason) for finding in found)


#: How many places each key lies behind the query.
BEHIND = numpy.arange(256, dtype=numpy.float32)[:, None] - numpy.arange(256, dtype=numpy.float32)


@pytest.mark.parametrize("target", ["paged", "npu"])
@pytest.mark.parametrize(
    ("added", "words"),
    [(-0.25 * BEHIND, "what it adds to the scores"), (numpy.where(BEHIND < 4, 0, MASKED), "the window that it holds")],
    ids=["bias", "window"],
)
def test_what_a_constant_adds_is_lost_or_meets_other_positions(added, words, target):
    model = openvino_model("llama", "ov-stateful").clone()
    one, axes = numpy.int64([1, 1]), numpy.int64([2, 3])
    for node in model.graph.of_op("ScaledDotProductAttention"):
        mask = node.native.input_value(3)
        kept = ops.constant(numpy.float32(added[None, None]), name=f"{node.name}/kept")
        rows, columns = (ops.gather(ops.shape_of(mask, "i64"), numpy.int64([axis]), numpy.int64(0)) for axis in (2, 3))
        start = ops.concat([ops.subtract(columns, rows), numpy.int64([0])], 0)
        cut = ops.slice(kept, start, ops.concat([columns, columns], 0), one, axes)
        node.native.input(3).replace_source_output(ops.add(mask, cut).output(0))
    model.mark_edited()
    report = check_model(model, target)
    assert report.confirmation.outcome == "confirmed", report.confirmation.contradictions
    found = [finding for finding in report.findings if not finding.holds]
    assert {(finding.subject, finding.verdict) for finding in found} == {("attention", "wrong")}
    assert all(words in finding.reason and finding.node.endswith("/kept") for finding in found)


def test_paged_attention_gives_all_tokens_one_position():
    (found,) = failing("granitemoehybrid", "ov-stateful", "paged")
    assert (found.verdict, found.name, found.node) == ("wrong", "position_ids", "__module.model/aten::add/Add")


@pytest.mark.parametrize("target", ["cpu", "gpu", "npu", "paged"])
def test_onnx_has_to_be_converted_first(target):
    report = check_model(onnx_model("llama"), target)
    assert [finding.verdict for finding in report.findings] == ["refused"]
    assert report.confirmation.outcome == "impossible"


def test_onnx_runtime_does_not_run_ir():
    report = check_model(openvino_model("llama"), "ort")
    assert [finding.verdict for finding in report.findings] == ["refused"]


def test_only_a_prediction_is_given_where_that_is_asked_for():
    assert check_model(openvino_model("llama"), "cpu", confirm=False).confirmation is None


def test_an_unknown_target_is_told():
    with pytest.raises(UsageError, match="GP223: there are no rules for target tpu"):
        check_model(openvino_model("llama"), "tpu")


FUSED, PLAIN = Finding("attention", "a", "fused"), Finding("attention", "b", "plain")
REFUSED, WRONG = Finding("model", "m", "refused"), Finding("cache", "c", "wrong")


@pytest.mark.parametrize(
    ("findings", "observed"),
    [
        ((FUSED, PLAIN), Observation("", frozenset())),
        ((FUSED, PLAIN), Observation("", frozenset({"a", "b"}))),
        ((FUSED,), Observation("", refused="no")),
        ((REFUSED,), Observation("")),
        ((WRONG,), Observation("", ran=True)),
        ((FUSED,), Observation("", wrong="NaN", ran=True)),
    ],
)
def test_what_does_not_come_true_contradicts(findings, observed):
    confirmation = compare(findings, observed)
    assert confirmation.outcome == "contradicted"
    assert len(confirmation.contradictions) == 1


@pytest.mark.parametrize(
    ("findings", "observed"),
    [
        ((FUSED, PLAIN), Observation("", frozenset({"a"}))),
        ((FUSED, REFUSED), Observation("", refused="no")),
        ((FUSED, WRONG), Observation("", wrong="NaN", ran=True)),
        ((WRONG,), Observation("")),
    ],
)
def test_what_comes_true_is_confirmed(findings, observed):
    assert compare(findings, observed).outcome == "confirmed"
