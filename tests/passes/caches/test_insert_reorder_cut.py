"""`insert-reorder{form=cut}`: a shorter mask equals recomputation, beams stay, and GPU plugins are told by version."""

from __future__ import annotations

import functools

import numpy
import pytest
from support.attention_operator import decoder_with_attention_operator
from support.decode import Decoder, compiled, greedy
from support.loaded import onnx_model, openvino_model
from support.models import reference
from support.onnx_request import OnnxRequest

import graphpass
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.manager import PassManager
from graphpass.engine.passes import Skipped
from graphpass.errors import PreconditionError, UnsupportedError
from graphpass.passes.caches.insert_reorder import InsertReorder
from graphpass.runtime import open_session
from graphpass.targets import check_model

CUT = InsertReorder(form="cut")

MODELS = [("llama", "ov-stateful"), ("deepseek_v3", "ov-stateful"), ("lfm2", "ov-stateful"), ("llama", "onnx")]


def source(name, variant):
    return onnx_model(name, variant) if variant == "onnx" else openvino_model(name, variant)


@functools.cache
def cut(name, variant):
    return PassManager([CUT]).run(source(name, variant)).model


def request(model):
    return OnnxRequest(model) if isinstance(model, OnnxModel) else compiled(model.ov_model).create_infer_request()


@pytest.mark.parametrize(("name", "variant"), MODELS)
def test_a_whole_mask_changes_nothing(name, variant):
    expected = reference(name)
    assert greedy(request(cut(name, variant)), [expected["prompt_ids"]] * 2, 12) == [expected["greedy_ids"]] * 2


@pytest.mark.parametrize(("name", "variant"), [one for one in MODELS if one[0] != "lfm2"])
def test_a_shorter_mask_equals_recomputation(name, variant):
    ids = numpy.random.default_rng(3).integers(5, 300, [2, 7])
    trimmed, fresh = Decoder(request(cut(name, variant))), Decoder(request(source(name, variant)))
    trimmed.step(ids)
    trimmed.mask = trimmed.mask[:, :4]
    fresh.step(ids[:, :4])
    for token in ([[8], [2]], [[30], [31]]):
        numpy.testing.assert_allclose(trimmed.step(numpy.array(token)), fresh.step(numpy.array(token)), atol=2e-5)


@pytest.mark.parametrize(("name", "variant"), MODELS)
def test_the_inventory_stays(name, variant):
    before, after = (graphpass.analyze_caches(make(name, variant)).caches for make in (source, cut))
    assert [(c.name, c.kind, c.role, c.axes) for c in after] == [(c.name, c.kind, c.role, c.axes) for c in before]


def test_beams_stay():
    assert "beam_idx" in {port.name for port in cut("llama", "ov-stateful").inputs}


def test_a_model_without_a_length_gets_an_input():
    model = PassManager([CUT]).run(decoder_with_attention_operator("none")).model
    assert "past_len" in {port.name for port in model.inputs}
    decoder, fresh = Decoder(request(model)), Decoder(request(model))
    decoder.step(numpy.array([[5, 9, 2, 7]]))
    fresh.step(numpy.array([[5, 9]]))
    step = {"position_ids": numpy.array([[2]])}
    found = decoder.step(numpy.array([[11]]), past_len=numpy.array([2]), **step)
    numpy.testing.assert_allclose(found, fresh.step(numpy.array([[11]]), **step), atol=2e-5)


class TestRefuses:
    @pytest.mark.parametrize(("name", "variant"), [("llama", "ov-stateful"), ("llama", "onnx")])
    def test_a_second_run_is_refused(self, name, variant):
        with pytest.raises(PreconditionError, match="GP319"):
            PassManager([CUT]).run(cut(name, variant))

    def test_a_model_with_reorder_inputs_is_refused(self):
        with pytest.raises(PreconditionError, match="GP319"):
            PassManager([InsertReorder(), CUT]).run(openvino_model("llama"))

    def test_a_stateless_ir_is_refused(self):
        with pytest.raises(PreconditionError, match="GP302"):
            PassManager([CUT]).run(openvino_model("llama", "ov-stateless"))

    def test_onnx_in_the_form_of_a_gpu(self):
        with pytest.raises(PreconditionError, match="GP301"):
            PassManager([InsertReorder(form="cut", trim="begin-one")]).run(onnx_model("llama"))

    def test_a_linear_model_is_skipped(self):
        result = PassManager([CUT]).run(openvino_model("mamba")).records[0].result
        assert isinstance(result, Skipped)


class TestBeginOne:
    """The form that one version of one plugin fuses: marked, and taken by nothing else."""

    PASSES = (InsertReorder(form="cut", trim="begin-one"), InsertReorder(trim="begin-one"))

    @pytest.mark.parametrize("step", PASSES, ids=lambda step: step.form)
    def test_check_reports_fusion_on_the_gpu_plugin(self, step):
        made = PassManager([step]).run(openvino_model("llama")).model
        report = check_model(made, "gpu", confirm=False)
        assert report.holds
        assert all("only in 2026.4.1" in finding.reason for finding in report.findings)

    @pytest.mark.parametrize("step", PASSES, ids=lambda step: step.form)
    def test_the_length_has_the_form_of_the_plugin(self, step):
        """It looks at the end by the Concat's axis as that is written, -2; and nothing asks what it drops one from."""
        native = PassManager([step]).run(openvino_model("llama")).model.ov_model
        cuts = [op for op in native.get_ops() if op.get_friendly_name().endswith("/trim")]
        assert len(cuts) == 4
        for cut in cuts:
            (reader,) = cut.output(0).get_target_inputs()
            concat = reader.get_node()
            assert (concat.get_type_name(), concat.get_attributes()["axis"]) == ("Concat", -2)
            ends = [value.get_node().get_friendly_name() for value in cut.input_value(2).get_node().input_values()]
            assert ends == ["lengths/past"] * 3

    @pytest.mark.parametrize("step", PASSES, ids=lambda step: step.form)
    def test_the_trim_is_noted_in_the_file(self, step, tmp_path):
        graphpass.save(PassManager([step]).run(openvino_model("llama")).model, tmp_path / "made.xml")
        made = graphpass.load(tmp_path / "made.xml")
        assert made.read_note("trim") == "begin-one"
        for target in ("cpu", "npu", "paged"):
            with pytest.raises(UnsupportedError, match=f"GP367: target {target} does not support|GP369: NPUW"):
                graphpass.get_target(target).pipeline(made)
        with pytest.raises(UnsupportedError, match="GP367: device CPU"):
            open_session(made)

    def test_check_reports_wrong_results_on_a_cpu(self):
        made = PassManager([InsertReorder(form="cut", trim="begin-one")]).run(openvino_model("llama")).model
        report = check_model(made, "cpu")
        assert "wrong" in {finding.verdict for finding in report.findings}
        assert report.confirmation.outcome == "confirmed", report.confirmation.contradictions
        decoder = Decoder(request(made))
        decoder.step(numpy.array([[5, 9, 2, 7]]))
        with pytest.raises(RuntimeError, match="mismatch"):  # the cache has lost its first position, the mask has not
            decoder.step(numpy.array([[3]]))

    @pytest.mark.parametrize("form", ["compact", "onnx"])
    def test_other_forms_have_no_such_trim(self, form):
        with pytest.raises(ValueError, match="requires form gpu or cut"):
            InsertReorder(form, trim="begin-one")
