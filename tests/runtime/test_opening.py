"""The backend that runs a model, by dialect, device and the way that it keeps caches."""

from __future__ import annotations

import pytest

from graphpass.errors import UsageError
from graphpass.runtime import open_session
from graphpass.testing import run, tiny_model


@pytest.mark.parametrize(
    ("form", "passes", "backend", "store"),
    [
        ("onnx", "", "auto", "StatelessStore"),
        ("onnx", "", "openvino", "StatelessStore"),
        ("onnx", "static-cache{capacity=24}", "auto", "OnnxRuntimeInPlaceStore"),
        ("onnx", "fuse-group-query-attention{context=64}", "auto", "OnnxRuntimeInPlaceStore"),
        ("openvino", "", "auto", "StatelessStore"),
        ("stateful", "", "auto", "OpenVINOStatefulStore"),
    ],
)
def test_stores_follow_from_the_model(form, passes, backend, store):
    model = tiny_model("llama", form, layers=1)
    session = open_session(run(model, passes) if passes else model, backend=backend)
    assert type(session.store).__name__ == store
    assert session.prefill([1, 5, 9]).shape == (1, 3, 64)


@pytest.mark.parametrize(
    ("form", "settings"),
    [
        ("openvino", {"backend": "onnxruntime"}),
        ("onnx", {"device": "GPU"}),
        ("onnx", {"properties": {"KV_CACHE_PRECISION": "u8"}}),
    ],
)
def test_settings_of_another_runtime_are_refused(form, settings):
    with pytest.raises(UsageError) as error:
        open_session(tiny_model("llama", form, layers=1), **settings)
    assert error.value.id == "GP240"


def test_a_saved_state_is_continued(tmp_path):
    model = tiny_model("llama", layers=1)
    session = open_session(model)
    session.prefill([1, 5, 9])
    session.save(tmp_path / "state")
    other = open_session(model, state=tmp_path / "state")
    assert other.length == 3
    assert (other.step([7]) == session.step([7])).all()


def test_models_in_bf16_run_in_f32_on_onnxruntime():
    model = run(tiny_model("llama", layers=1), "change-precision{to=bf16}")
    assert open_session(model).prefill([1, 5, 9]).shape == (1, 3, 64)
