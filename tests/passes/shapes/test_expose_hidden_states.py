"""The pass `expose-hidden-states`: the residual stream after each layer, alike in all exports of a model."""

from __future__ import annotations

import numpy
import pytest
from support.loaded import converted, exported, run_once

from graphpass.analysis.caches.layer_states import find_layer_states
from graphpass.errors import UnsupportedError, UsageError
from graphpass.runtime import open_session
from graphpass.verify import compare

PROMPT = [3, 1, 4, 15, 92]


def states_of(model):
    """The states of all layers: of a prompt, of a draft, and of what follows a part of it."""
    session = open_session(model)
    found = []
    for tokens, kept in ((PROMPT, 5), ([6, 5, 35], 6), ([89, 79], 8)):
        session.forward([tokens])
        found.append(session.hidden_states)
        session.rewind(kept)
    layers = list(found[0])
    assert layers == sorted(layers)
    return numpy.stack([numpy.concatenate([one[layer][0] for one in found]) for layer in layers])


@pytest.mark.parametrize(
    ("name", "variants", "layers"),
    [
        ("llama", ["onnx", "onnx-genai", "ov-stateful"], 2),
        pytest.param("gemma3_text", ["onnx", "ov-stateless", "ov-stateful"], 4, marks=pytest.mark.slow),
        pytest.param("lfm2", ["onnx-genai", "ov-stateful"], 4, marks=pytest.mark.slow),
        pytest.param("gpt2", ["onnx", "ov-stateful"], 2, marks=pytest.mark.slow),
        pytest.param("qwen3", ["onnx", "onnx-genai", "ov-stateless"], 2, marks=pytest.mark.slow),
    ],
)
def test_all_exports_agree(name, variants, layers):
    every = f"expose-hidden-states{{layers=[{','.join(map(str, range(layers)))}]}}"
    found = [states_of(run_once(exported(f"{name}/{variant}"), every).model) for variant in variants]
    assert found[0].shape == (layers, 10, 64)
    for other in found[1:]:
        numpy.testing.assert_allclose(other, found[0], atol=2e-4)


def test_layer_states_agree_with_node_names():
    """By the exporter's names, which the pass does not read."""
    model = exported("llama_12l/onnx")
    states = find_layer_states(model)
    assert not isinstance(states, str)
    for layer, (value,) in enumerate(states):
        node = model.graph.producer(value)
        # Norms begin with a cast.
        total = model.graph.producer(node.input(0)) if node.op == "Convert" else node
        assert total.name == f"/model/layers.{layer}/Add_1"


@pytest.mark.parametrize(
    ("place", "target"),
    [
        pytest.param("llama/onnx", "cpu", marks=pytest.mark.slow),
        ("qwen3/onnx-genai", "ort"),
        pytest.param("lfm2/ov-stateful", "cpu", marks=pytest.mark.slow),
        pytest.param("mistral_sw8/onnx", "gpu", marks=pytest.mark.slow),
    ],
)
def test_targets_keep_hidden_states(place, target):
    """And a model that was made for a target can expose them, too."""
    exposed = run_once(exported(place), "expose-hidden-states{layers=[0,-1]}").model
    wanted = states_of(exposed)
    for made in (
        converted(exposed, target).model,
        run_once(converted(exported(place), target).model, "expose-hidden-states{layers=[0,-1]}").model,
    ):
        numpy.testing.assert_allclose(states_of(made), wanted, atol=2e-4)
        assert compare(exported(place), made, steps=3).passed


def test_layers_add_up_and_the_last_one_is_the_default():
    last = run_once(exported("gpt2/onnx"), "expose-hidden-states").model
    assert [port.name for port in last.outputs if "hidden" in port.name] == ["hidden_states.1"]
    again = run_once(last, "expose-hidden-states{layers=[-1,0,1]}")
    assert again.records[-1].result.statistics == {"outputs added": 1}
    assert not run_once(again.model, "expose-hidden-states{layers=[0,-1]}").records[-1].result.changed
    port = next(port for port in again.model.outputs if port.name == "hidden_states.0")
    assert (port.element_type, port.shape[2]) == ("f32", 64)


def test_missing_layers_are_refused():
    with pytest.raises(UsageError, match="no layer -3: the model has 2") as caught:
        run_once(exported("llama/onnx"), "expose-hidden-states{layers=[0,-3]}")
    assert caught.value.id == "GP253"
    assert "from 0 to 1, or from -2 to -1" in caught.value.hint


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("whisper/onnx/encoder_model.onnx", "the model has no output logits"),
        ("llama/onnx-nocache", "no caches are between"),
        pytest.param("zamba2/ov-stateful", "carries all computation from layer 0 to layer 1", marks=pytest.mark.slow),
    ],
)
def test_models_without_layers_are_skipped(place, reason):
    assert reason in run_once(exported(place), "expose-hidden-states").records[-1].result.reason


def test_a_model_without_hidden_states_refuses_to_return_them():
    session = open_session(exported("gpt2/onnx"))
    with pytest.raises(UnsupportedError, match="does not return hidden states") as caught:
        _ = session.hidden_states
    assert caught.value.id == "GP377"
    exposed = open_session(run_once(exported("gpt2/onnx"), "expose-hidden-states").model)
    with pytest.raises(UsageError, match="before the first forward pass"):
        _ = exposed.hidden_states


@pytest.mark.slow
def test_npuw_returns_no_hidden_states():
    exposed = run_once(exported("llama/onnx"), "expose-hidden-states").model
    with pytest.raises(UnsupportedError, match=r"logits only, not output hidden_states\.1"):
        open_session(converted(exposed, "npu").model, device="NPU", properties={"NPUW_DEVICES": "CPU"})
