"""ONNX Runtime's OpenVINO provider pairs caches by patterns of names."""

from support.loaded import onnx_model, run_once
from targets.consumers.views import view, views_of

CONSUMER = "ONNX Runtime OpenVINO EP"


def test_default_names_are_paired():
    found = view(onnx_model("llama"), CONSUMER)
    assert found.verdict == "agrees"
    assert {one.sees for one in found.caches} == {"kv"}
    assert any("only in releases after 1.24.1" in reason for reason in found.reasons)


def test_caches_are_trimmed_along_axis_2():
    found = view(run_once(onnx_model("llama"), "standardize-layout{to=BSHD}").model, CONSUMER)
    assert found.verdict == "misreads"
    assert any("along axis 2, but positions are on another axis" in reason for reason in found.reasons)


def test_inputs_that_the_provider_adds_are_refused():
    found = view(run_once(onnx_model("llama"), "insert-reorder{form=onnx}").model, CONSUMER)
    assert found.verdict == "misreads"
    assert any("which the provider adds" in reason for reason in found.reasons)
    assert {one.sees for one in found.caches} <= {"nothing"}


def test_the_execution_provider_leaves_linear_states_outside():
    view = views_of("lfm2/onnx-genai/model.onnx")[2]["ONNX Runtime OpenVINO EP"]
    assert view.verdict == "misreads"
    assert view.reasons[0].startswith("will leave past.0.conv and past.2.conv an ordinary input")
    assert [one.sees for one in view.caches] == ["nothing", "kv", "kv", "nothing", "kv", "kv"]


def test_the_execution_provider_wants_equal_shapes_on_gpu():
    view = views_of("deepseek_v3/onnx/model.onnx")[2]["ONNX Runtime OpenVINO EP"]
    assert view.verdict == "misreads"
    assert "on GPU" in view.reasons[0]
