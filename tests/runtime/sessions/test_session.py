"""Test refusals of sessions, and the odd shapes they take."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import openvino
import pytest
from openvino import opset13 as ops
from support import logits_forms
from support.loaded import onnx_model, openvino_model, reshaped
from support.models import export, reference

from graphpass.errors import GraphpassError, UnsupportedError, UsageError
from graphpass.io import load
from graphpass.runtime import DecodeSession, open_session

if TYPE_CHECKING:
    from collections.abc import Callable


def llama(variant: str = "onnx") -> DecodeSession:
    return open_session(load(export("llama", variant)))


@pytest.mark.parametrize(
    ("act", "id"),
    [
        (lambda: llama().forward([1, 2]), "GP241"),
        (lambda: llama().forward(np.zeros((1, 0), np.int64)), "GP241"),
        (lambda: llama().forward([[1, 2]], attention_mask=[[1]]), "GP241"),
        (lambda: llama().forward([[1, 2]], position_ids=[[0]]), "GP241"),
        (lambda: llama().logits, "GP243"),
        (lambda: open_session(onnx_model("llama"), device="GPU"), "GP240"),
        (lambda: open_session(openvino_model("llama"), backend="onnxruntime"), "GP240"),
        (lambda: open_session(onnx_model("llama"), properties={"PERFORMANCE_HINT": "LATENCY"}), "GP240"),
    ],
)
def test_wrong_use_is_refused(act: Callable[[], object], id: str) -> None:  # noqa: A002 - as in GraphpassError
    with pytest.raises(UsageError) as caught:
        act()
    assert caught.value.id == id


def test_copies_for_callers_are_counted() -> None:
    session = llama()
    session.prefill([1, 5, 9])
    copied = session.stats.bytes_copied
    contents = session.contents()
    assert session.stats.bytes_copied - copied == sum(content.nbytes for content in contents.values()) > 0


@pytest.mark.parametrize("variant", ["onnx", "ov-stateless", "ov-stateful"])
def test_another_batch_needs_a_reset(variant: str) -> None:
    session = llama(variant)
    session.prefill([1, 2, 3])
    with pytest.raises(UsageError, match="batch of 1, got 2"):
        session.step([1, 2])
    session.reset()
    assert (session.batch, session.length) == (0, 0)
    assert session.prefill([[1, 2], [3, 4]]).shape == (2, 2, 320)


def test_a_runtime_failure_is_reported_in_one_line() -> None:
    with pytest.raises(UnsupportedError) as caught:
        llama().prefill([1, 10**6])
    assert caught.value.id == "GP322"
    assert "\n" not in caught.value.message


def test_a_model_refused_by_the_runtime() -> None:
    model = onnx_model("llama")
    model.proto.graph.node[0].op_type = "Nonsense"
    model.mark_edited()
    with pytest.raises(UnsupportedError) as caught:
        open_session(model)
    assert caught.value.id == "GP321"
    assert "Nonsense" in caught.value.message


def test_properties_reach_the_device() -> None:
    model, ids = openvino_model("llama"), reference("llama")["prompt_ids"]
    plain, rounded = open_session(model), open_session(model, properties={"KV_CACHE_PRECISION": "u8"})
    for session in (plain, rounded):
        session.prefill(ids)
    assert 1e-4 < abs(rounded.step([7]) - plain.step([7])).max() < 0.5
    with pytest.raises(UnsupportedError, match="NONSENSE") as caught:
        open_session(model, properties={"NONSENSE": "YES"})
    assert caught.value.id == "GP321"


def test_a_missing_device() -> None:
    with pytest.raises(UnsupportedError) as caught:
        open_session(openvino_model("llama"), device="NOPE")
    assert caught.value.id == "GP321"
    assert "NOPE" in caught.value.message


@pytest.mark.parametrize(
    ("name", "variant", "file", "words"),
    [
        ("whisper", "ov-stateful", "openvino_decoder_model.xml", "input encoder_hidden_states [?, ?, 32]"),
        ("whisper", "onnx", "encoder_model.onnx", "input input_features"),
        ("t5", "onnx", "decoder_with_past_model.onnx", "encoder"),
    ],
)
def test_unfeedable_inputs_and_caches_are_refused(name: str, variant: str, file: str, words: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        open_session(load(export(name, variant) / file))
    assert caught.value.id == "GP320"
    assert words in caught.value.message


def test_empty_reorder_inputs_change_nothing() -> None:
    model = openvino_model("llama")
    plain = open_session(model)
    edited = model.clone()
    _insert_reorder(edited.ov_model)
    edited.mark_edited()
    session = open_session(edited)
    ids = reference("llama")["prompt_ids"]
    np.testing.assert_allclose(session.prefill(ids), plain.prefill(ids), atol=1e-5)
    np.testing.assert_allclose(session.step([7]), plain.step([7]), atol=1e-5)


def _insert_reorder(model: openvino.Model) -> None:
    source = ops.parameter([-1], np.int32, name="src_idx")
    slots = ops.parameter([1, 2, -1, 16], np.int32, name="dst_idx")
    for parameter in (source, slots):
        parameter.output(0).set_names({parameter.get_friendly_name()})
    axis = ops.constant(2, np.int32)
    for read in [op for op in model.get_ops() if op.get_type_name() == "ReadValue"]:
        readers = read.output(0).get_target_inputs()
        moved = ops.scatter_elements_update(read, slots, ops.gather(read, source, axis), axis)
        for reader in readers:
            reader.replace_source_output(moved.output(0))
    model.add_parameters([source, slots])
    model.validate_nodes_and_infer_types()


def test_a_fixed_batch_is_known() -> None:
    model = reshaped(openvino_model("llama", "ov-stateless"), batch=1)
    session = open_session(model)
    assert session.fixed_batch == 1
    assert session.prefill([1, 2, 3]).shape == (1, 3, 320)
    assert llama().fixed_batch is None


def test_a_fixed_length_is_fed_in_pieces() -> None:
    model = openvino_model("llama")
    shapes = {port.get_any_name(): port.partial_shape for port in model.ov_model.inputs}
    model.ov_model.reshape({**shapes, "input_ids": [-1, 2], "position_ids": [-1, 2]})
    model.mark_edited()
    session = open_session(model)
    np.testing.assert_allclose(session.prefill([1, 5, 9, 14]), llama().prefill([1, 5, 9, 14]), atol=1e-4)
    with pytest.raises(UnsupportedError) as caught:
        session.step([3])
    assert caught.value.id == "GP323"


def test_a_model_without_logits_runs() -> None:
    model = logits_forms.rename_logits(logits_forms.add_output(onnx_model("llama"), "copy", "logits"), "scores")
    session = open_session(model)
    assert set(session.forward([[1, 2]])) == {"scores", "copy"}
    with pytest.raises(GraphpassError) as caught:
        _ = session.logits
    assert caught.value.id == "GP324"


def test_logits_of_wrong_rank_are_refused() -> None:
    session = open_session(logits_forms.flatten_logits(onnx_model("llama")))
    with pytest.raises(UnsupportedError, match=r"output logits is \[3, 320\]") as caught:
        session.prefill([1, 2, 3])
    assert caught.value.id == "GP324"


def test_importing_loads_no_runtime() -> None:
    code = (
        "import sys, graphpass.runtime, graphpass.verify;"
        "print(sorted({'numpy', 'openvino', 'onnxruntime', 'onnx'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_head_sizes_known_from_weights_alone_are_fed() -> None:
    expected = reference("llama")
    session = open_session(load(export("llama", "onnx-genai")))
    logits = session.prefill(expected["prompt_ids"])
    np.testing.assert_allclose(logits[0, -1, :8], expected["logits_last_prompt_pos_first8"], atol=1e-4)
