"""Name exports that contradict themselves: one prompt fed in two ways, rows in a batch and alone."""

import json
import re

import numpy as np
import openvino
import pytest
from openvino import opset13 as ops
from support.commands import in_process
from support.first_columns import hybrid_masked_by_first_columns
from support.loaded import converted, exported
from support.models import steps

from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse
from graphpass.io import load
from graphpass.runtime import open_session
from graphpass.verify import compare

PROMPTS = "the reference is inconsistent: a prompt of 20 tokens at once and token by token: logits differ by "
ROWS = "the reference is inconsistent: rows in a batch of 2 and alone: logits differ by "
PADDED = "the reference is inconsistent: rows padded on the left and alone: logits differ by "


@pytest.mark.parametrize(
    ("place", "warning"),
    [
        ("llama/onnx", None),
        ("mamba/ov-stateful", PROMPTS),  # optimum-intel's export computes a prompt otherwise than its tokens
        ("mamba/onnx-raw", PADDED),  # the mask has no effect on states
        pytest.param("qwen3_next/ov-stateful", PADDED, marks=pytest.mark.slow),
        pytest.param("zamba2/ov-stateful", PROMPTS, marks=pytest.mark.slow),  # beyond 16 tokens
        pytest.param("lfm2/ov-stateful", PADDED, marks=pytest.mark.slow),
        pytest.param("granitemoehybrid/ov-stateful", None, marks=pytest.mark.slow),
    ],
)
def test_inconsistent_references_are_reported(place, warning):
    model = exported(place)
    found = compare(model, model, steps=1, examine=True)
    assert found.passed
    assert [re.sub(r"[\d.]+$", "", words) for words in found.warnings] == ([] if warning is None else [warning])
    if warning is not None:
        assert warning in found.summary()
    assert compare(model, model, steps=1).warnings == ()


@pytest.mark.slow
def test_results_that_exclude_padding_are_not_warned_of():
    """The reference misreads padding on the left, and the result of `npu` does not."""
    model = exported("qwen3_next/ov-stateful")
    found = compare(model, converted(model, "npu").model, steps=1, examine=True)
    assert found.passed
    assert found.warnings == ()


@pytest.mark.slow
def test_a_reference_misreading_padded_pasts_is_reported():
    model = hybrid_masked_by_first_columns()
    found = compare(model, model, steps=1, examine=True)
    assert found.passed
    (warning,) = found.warnings
    assert "several tokens after a padded past are multiplied by the first columns of attention_mask" in warning


def test_a_missing_self_check_is_reported():
    fixed = PassManager(parse("static-cache{capacity=14}")).run(exported("mistral_sw8/onnx")).model
    found = compare(fixed, fixed, steps=2, examine=True)
    assert found.passed
    assert found.warnings == ()
    assert any(
        words.startswith("self-consistency of the reference: no room for the prompt: ") for words in found.skipped
    )


def test_sums_with_a_bias_are_wrong_in_a_batch():
    """Keep the cause that rows are named: OpenVINO's CPU plugin fuses a bias into the ReduceSum before it."""
    bias = np.arange(6, dtype=np.float32)[None]
    rows = ops.parameter([-1, 6, 4], np.float32)
    graph = openvino.Model([ops.add(ops.reduce_sum(rows, np.array([-1])), ops.constant(bias))], [rows])
    compiled = openvino.compile_model(graph, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    fed = np.random.default_rng(0).standard_normal((2, 6, 4)).astype(np.float32)
    expected = fed.sum(-1) + bias
    assert np.abs(compiled(fed[:1])[0] - expected[:1]).max() < 1e-5
    apart = np.abs(compiled(fed)[0] - expected).max()
    assert apart > 1, "OpenVINO mended it: fixtures/steps.tar.xz shows no fault any more"


def test_rows_mixed_by_the_runtime_are_reported():
    model = load(steps() / "mamba2" / "ov-step")
    found = compare(model, model, steps=0, examine=True)
    assert found.passed
    assert [words.startswith(ROWS) for words in found.warnings] == [True]
    assert float(found.warnings[0].removeprefix(ROWS)) > 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["jamba", "mamba2", "falcon_h1"])
def test_one_row_matches_pytorch_and_convert_warns_of_batches(name, capfd, tmp_path):
    folder = steps() / name
    expected = json.loads((folder / "reference.json").read_text())
    session = open_session(load(folder / "ov-step"))
    logits = session.prefill([expected["prompt_ids"]])
    for token in expected["greedy_ids"]:
        assert int(logits[0, -1].argmax()) == token
        logits = session.step([[token]])
    shown = in_process(capfd, "convert", folder / "ov-step", "--target", "cpu", "-o", tmp_path / "out")
    assert shown.code == 0, shown.err
    number = re.search(f"WARNING: {ROWS}(.*)", shown.out + shown.err)
    assert number is not None
    assert float(number[1]) > 1
