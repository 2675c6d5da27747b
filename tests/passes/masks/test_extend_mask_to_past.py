"""extend-mask-to-past: attention_mask covers past and new tokens, where it stood for the new ones alone."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np
import openvino
import openvino_genai
import pytest
from openvino import opset13
from support.decode import EXACT, compiled, greedy
from support.loaded import exported, openvino_after
from support.models import export, reference

import graphpass
from graphpass import PassManager, parse
from graphpass.analysis.caches.step_tokens import find_step_tokens
from graphpass.engine.passes import Skipped
from graphpass.runtime import open_session
from graphpass.verify import compare

if TYPE_CHECKING:
    from pathlib import Path

    from graphpass.dialects.openvino.model import OpenVINOModel


def source() -> OpenVINOModel:
    return exported("zamba2/ov-stateful")


def covered() -> OpenVINOModel:
    return openvino_after(source(), "extend-mask-to-past")


def outcome(model: graphpass.Model) -> object:
    return PassManager(parse("extend-mask-to-past")).run(model).records[0].result


def test_masks_are_rewritten_and_states_read_new_columns():
    result = outcome(source())
    assert result.changed
    assert result.statistics == {"masks of attention": 1}
    (node,) = [op for op in covered().ov_model.get_ops() if op.get_type_name() == "ScaledDotProductAttention"]
    visible = node.input_value(3).get_node().input_value(0).get_node()
    assert visible.get_type_name() == "LogicalAnd"
    (mask,) = [port.get_node() for port in covered().ov_model.inputs if "attention_mask" in port.get_names()]
    readers = {reader.get_node().get_type_name() for reader in mask.output(0).get_target_inputs()}
    assert readers == {"ShapeOf", "Slice", "Convert"}


def test_generates_the_reference_tokens_with_masks_of_all_positions():
    expected = reference("zamba2")
    request = compiled(covered().ov_model).create_infer_request()
    assert greedy(request, [expected["prompt_ids"]], 12) == [expected["greedy_ids"]]


def test_steps_with_such_a_mask_need_the_pass():
    request = compiled(source().ov_model).create_infer_request()
    with pytest.raises(RuntimeError, match="Broadcast"):
        greedy(request, [reference("zamba2")["prompt_ids"]], 2)


def test_a_mask_of_the_new_tokens_keeps_its_meaning():
    comparison = compare(source(), covered())
    assert comparison.passed, comparison.summary()


def test_padding_in_the_past_is_not_attended_to():
    """The prompt and its padding fit into one of the chunks (8 tokens) in which the model scans a prompt."""
    session, alone = open_session(covered()), open_session(source())
    ids = reference("zamba2")["prompt_ids"]
    assert session.takes_mask
    assert not alone.takes_mask
    padded, expected = session.prefill([[0, 0, *ids]], [[0, 0, *[1] * len(ids)]]), alone.prefill(ids)
    for _ in range(8):
        np.testing.assert_allclose(padded[:, -1], expected[:, -1], atol=1e-4)
        token = expected[:, -1].argmax(-1)
        padded, expected = session.step(token), alone.step(token)


@pytest.mark.slow
@pytest.mark.parametrize("passes", ["", "extend-mask-to-past"])
def test_going_back_feeds_token_by_token(passes: str):
    """A step behind a past takes one token: what a rewind owes is not fed in one run with what follows."""
    model = covered() if passes else source()
    session, again = open_session(model), open_session(model)
    ids = reference("zamba2")["prompt_ids"]
    session.prefill(ids[:2])
    session.step([ids[2:5]])
    session.step([[7]])
    session.trim(3)
    again.prefill(ids[:3])
    np.testing.assert_allclose(session.step([[9, 11]]), again.step([[9, 11]]), atol=1e-4)
    np.testing.assert_allclose(session.logits[:, -1], open_session(model).prefill([*ids[:3], 9, 11])[:, -1], atol=1e-4)


def test_openvino_genai_generates_the_reference_tokens(tmp_path: Path):
    graphpass.save(covered(), tmp_path / "openvino_model.xml")
    for file in [*export("zamba2", "ov-stateful").glob("*.json"), *export("llama", "ov-stateful").glob("*_*token*")]:
        shutil.copy(file, tmp_path)
    pipeline = openvino_genai.LLMPipeline(tmp_path, "CPU", ATTENTION_BACKEND="SDPA", **EXACT)
    prompt = openvino.Tensor(np.array([reference("zamba2")["prompt_ids"]], np.int64))
    config = openvino_genai.GenerationConfig(max_new_tokens=12, ignore_eos=True)
    assert list(pipeline.generate(prompt, config).tokens[0]) == reference("zamba2")["greedy_ids"]


def test_a_second_run_changes_nothing():
    assert not outcome(covered()).changed


@pytest.mark.parametrize(
    ("name", "variant"),
    [("llama", "ov-stateful"), ("mamba", "ov-stateful"), ("lfm2", "ov-stateful"), ("qwen3_next", "ov-stateless")],
)
def test_models_without_short_masks_stay(name: str, variant: str):
    assert not outcome(exported(f"{name}/{variant}")).changed


def test_a_mask_with_other_values_is_unchanged():
    model = source().clone()
    (node,) = [op for op in model.ov_model.get_ops() if op.get_type_name() == "ScaledDotProductAttention"]
    node.input(3).replace_source_output(opset13.sin(node.input_value(3)).output(0))
    model.mark_edited()
    result = outcome(model)
    assert isinstance(result, Skipped)
    assert "is not the causal condition" in result.reason


@pytest.mark.parametrize(
    ("name", "variant", "masks_new_tokens", "one_by_one"),
    [
        ("zamba2", "ov-stateful", True, True),
        ("mamba", "ov-stateful", False, True),
        ("mamba", "ov-stateless", False, True),
        ("lfm2", "ov-stateful", False, False),
        ("lfm2", "onnx-genai", False, False),
        ("qwen3_next", "ov-stateful", False, False),
        ("granitemoehybrid", "ov-stateless", False, False),
        ("llama", "onnx", False, False),
    ],
)
def test_lengths_of_a_step_are_found(name: str, variant: str, masks_new_tokens: bool, one_by_one: bool):
    model = exported(f"{name}/{variant}")
    step_tokens = find_step_tokens(model, graphpass.analyze_caches(model))
    assert (step_tokens.masks_new_tokens, step_tokens.one_by_one) == (masks_new_tokens, one_by_one)
