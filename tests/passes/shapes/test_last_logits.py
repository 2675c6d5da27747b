"""The pass `last-logits`: the last token's logits, whichever side padding is on, in both dialects."""

from __future__ import annotations

import numpy
import onnxruntime
import pytest
from support.commands import in_process
from support.loaded import exported, run_once
from support.models import export
from support.reference_tokens import generates_reference_tokens

from graphpass.analysis.caches.last_logits import selects_undeclared
from graphpass.engine.pipeline import format_passes
from graphpass.io import load
from graphpass.runtime import open_session
from graphpass.testing import run, tiny_model
from graphpass.verify import compare
from graphpass.verify.session_forms import passes_for_sessions


@pytest.mark.parametrize(
    "place",
    [
        "gemma2/onnx",
        "llama/ov-stateful",
        pytest.param("gpt2/onnx", marks=pytest.mark.slow),
        pytest.param("llama/onnx-fp16", marks=pytest.mark.slow),
        pytest.param("qwen3/ov-stateless", marks=pytest.mark.slow),
    ],
)
def test_the_last_token_of_each_row(place):
    result = run_once(exported(place), "last-logits").model
    sessions = open_session(exported(place)), open_session(result)
    assert sessions[1].last_only
    ids = numpy.random.default_rng(0).integers(3, 300, (3, 7))
    mask = numpy.ones_like(ids)
    mask[0, :2] = mask[1, 5:] = mask[2, 3] = 0
    whole, last = (session.prefill(ids, mask) for session in sessions)
    assert last.shape == (3, 1, 320)
    numpy.testing.assert_allclose(last[:, 0], whole[range(3), [6, 4, 6]], atol=1e-5)
    one, other = (session.step([5, 6, 7]) for session in sessions)
    numpy.testing.assert_allclose(other, one, atol=1e-5)
    assert compare(exported(place), result, steps=3).passed
    assert generates_reference_tokens(result, place.partition("/")[0])


def test_a_second_run_changes_nothing():
    again = run_once(run_once(exported("llama/onnx"), "last-logits").model, "last-logits").records[-1].result
    assert again.reason == "the model already computes the logits of one token only"


def test_a_model_without_logits_is_skipped():
    result = run_once(exported("whisper/onnx/encoder_model.onnx"), "last-logits").records[-1].result
    assert "no output logits" in result.reason


@pytest.mark.slow
@pytest.mark.parametrize("target", ["ort{logits=last}", "cpu{logits=last}"])
def test_targets_have_the_option(target, capfd, tmp_path):
    done = in_process(capfd, "convert", export("llama", "onnx"), "-o", tmp_path / "made", "--target", target)
    assert (done.code, done.err) == (0, "")
    assert "contract  holds; confirmed" in done.out
    (logits,) = [port for port in load(tmp_path / "made").outputs if port.name == "logits"]
    assert logits.shape is not None
    assert logits.shape[1] == 1


def test_the_selected_position_is_declared():
    model = tiny_model("llama")
    rewriter, result = model.rewriter(), model.graph.writes["logits"]
    rewriter.redirect(result, 0, rewriter.under("last").slice(result.source(), -1, None, 1))
    assert rewriter.finish()
    assert selects_undeclared(model)
    assert format_passes(passes_for_sessions(model)) == "last-logits"
    after = run(model, "last-logits")
    assert after.graph.writes["logits"].source().shape[1] == 1
    assert not selects_undeclared(after)


def test_an_input_counts_the_places():
    result = run_once(exported("llama/onnx"), "last-logits{count=input}").model
    assert compare(exported("llama/onnx"), result, steps=3).passed
    session = open_session(result)
    with result.on_disk() as file:
        runtime = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    feeds = {port.name: numpy.zeros((1, 2, 0, 16), numpy.float32) for port in result.inputs if "past" in port.name}
    feeds |= dict.fromkeys(("attention_mask",), numpy.ones((1, 4), numpy.int64))
    feeds |= {"input_ids": numpy.array([[5, 9, 17, 3]]), "position_ids": numpy.arange(4)[None]}
    whole = session.prefill([[5, 9, 17, 3]])
    for count, wanted in ((0, whole), (1, whole[:, -1:]), (3, whole[:, -3:])):
        (found,) = runtime.run(["logits"], feeds | {"num_logits_to_keep": numpy.array(count)})
        numpy.testing.assert_allclose(found, wanted, atol=1e-5)
    again = run_once(result, "last-logits{count=input}").records[-1].result
    assert again.reason == "the model already has an input num_logits_to_keep"
