"""`window-from-positions`: behind positions that were masked out, windows are those of recomputation."""

from __future__ import annotations

import numpy
import openvino.opset15 as ops
import pytest
from support.decode import Decoder, compiled, fused_attention, greedy
from support.loaded import exported, openvino_after, openvino_model
from support.models import reference
from support.quick_cases import quick_product

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.masks import find_masks
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.errors import PreconditionError, UnsupportedError
from graphpass.passes.masks.window_from_positions import WindowFromPositions

#: How each model gets there: its export, and what runs before the pass.
WINDOWED = {
    "gemma3_text": ("ov-stateful", ""),
    "gemma3_text from ONNX": ("onnx", "to-openvino,fuse-attention,expose-position-ids,expose-window,make-stateful"),
    "gemma3_text unexposed": ("onnx", "to-openvino,fuse-attention,expose-position-ids,make-stateful"),
    "mistral_sw8": ("onnx", "to-openvino,fuse-attention,simplify-shapes,make-stateful"),
    "gpt_oss": ("onnx", "to-openvino,fuse-attention,expose-position-ids,make-stateful"),
    "gpt_neo": ("onnx", "to-openvino,fuse-attention,expose-position-ids,make-stateful"),
    "gemma2": ("onnx", "to-openvino,expose-position-ids,make-stateful"),
}
FUSED = [case for case in WINDOWED if case != "gemma2"]  # its scores have a soft cap


def before(case: str) -> OpenVINOModel:
    variant, pipeline = WINDOWED[case]
    model = exported(f"{case.split(' ')[0]}/{variant}")
    return openvino_after(model, pipeline) if pipeline else model


def after(case: str) -> OpenVINOModel:
    return openvino_after(before(case), WindowFromPositions())


def rejected(model: OpenVINOModel, batch: int = 1) -> float:
    """Return the distance of logits behind 3 masked, renumbered tokens from those without them."""
    decoder, fresh = (Decoder(compiled(model.ov_model).create_infer_request()) for _ in range(2))
    ids = numpy.random.default_rng(1).integers(5, 300, [batch, 20])
    decoder.step(ids)
    decoder.mask[:, 17:] = 0
    fresh.step(ids[:, :17])
    worst = 0.0
    for token in ([[9], [14]], [[21], [6]]):
        next_token = numpy.array(token[:batch])
        worst = max(worst, float(abs(decoder.step(next_token) - fresh.step(next_token)).max()))
    return worst


@pytest.mark.parametrize(("case", "batch"), quick_product(list(WINDOWED), [1, 2]))
def test_rejected_positions_leave_the_window_unchanged(case, batch):
    assert rejected(before(case), batch) > 1e-2
    assert rejected(after(case), batch) < 1e-5


@pytest.mark.parametrize("case", WINDOWED)
def test_decodes_the_reference_tokens_after_padding(case):
    expected = reference(case.split(" ")[0])
    request = compiled(after(case).ov_model).create_infer_request()
    prompts = [expected["prompt_ids"], [17, 4, *expected["prompt_ids"]]]
    assert greedy(request, prompts, 12)[0] == expected["greedy_ids"]


@pytest.mark.parametrize("case", FUSED)
def test_the_cpu_plugin_still_fuses(case):
    assert fused_attention(compiled(after(case).ov_model)) == fused_attention(compiled(before(case).ov_model)) > 0


@pytest.mark.parametrize("case", WINDOWED)
def test_the_windows_are_found_as_before(case):
    blocks = [analyze_caches(make(case)).attention for make in (before, after)]
    windows = [[(block.window, block.window_in, block.mask) for block in found] for found in blocks]
    assert windows[0] == windows[1]


@pytest.mark.parametrize("case", WINDOWED)
def test_a_second_run_changes_nothing(case):
    result = PassManager([WindowFromPositions()]).run(after(case)).records[0].result
    assert not result.changed


def test_a_model_without_windows_is_unchanged():
    result = PassManager([WindowFromPositions()]).run(openvino_model("llama")).records[0].result
    assert not result.changed


class TestRefuses:
    def test_a_window_beside_a_bias(self):
        model = openvino_after(exported("gpt_neo/onnx"), "to-openvino,fuse-attention").clone()
        (attention,) = (mask.node for mask in model.analysis(find_masks) if mask.window is not None)
        mask = attention.native.input_value(3)
        attention.native.input(3).replace_source_output(ops.add(mask, numpy.float32(0.5)).output(0))
        model.mark_edited()
        with pytest.raises(UnsupportedError, match=r"GP364.*adds a bias to the scores of visible keys"):
            PassManager([WindowFromPositions()]).run(model)
        noted = PassManager([WindowFromPositions(required=False)]).run(model).records[0].result
        assert not noted.changed
        assert "cannot count positions" in noted.notes[0]

    def test_a_model_without_positions_is_refused(self):
        model = openvino_after(exported("gpt_oss/onnx"), "to-openvino,fuse-attention")
        with pytest.raises(PreconditionError, match="GP361"):
            PassManager([WindowFromPositions()]).run(model)

    def test_several_positions_of_a_token(self):
        model = exported("gemma3_text/ov-stateful").clone().ov_model
        given = next(one for one in model.get_parameters() if one.friendly_name == "position_ids")
        three = ops.parameter([3, -1, -1], numpy.int64, "position_ids")
        three.output(0).set_names({"position_ids"})
        users = given.output(0).get_target_inputs()
        first = ops.gather(three, ops.constant(0), ops.constant(0))
        for user in users:
            user.replace_source_output(first.output(0))
        model.remove_parameter(given)
        model.add_parameters([three])
        with pytest.raises(PreconditionError, match=r"GP361.*several positions"):
            PassManager([WindowFromPositions()]).run(OpenVINOModel(model))
