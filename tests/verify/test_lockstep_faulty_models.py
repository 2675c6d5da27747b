"""Models with one thing wrong are found, and the report points at it."""

from __future__ import annotations

import json
import math
import pickle
from typing import TYPE_CHECKING

import pytest
from support import logits_forms
from support.loaded import onnx_model, openvino_model
from verify import faulty_models

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.errors import UnsupportedError
from graphpass.verify import Comparison, Divergence, compare

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphpass.dialects.onnx.model import OnnxModel


def divergence(mutate: Callable[[OnnxModel], OnnxModel], steps: int = 3) -> tuple[Comparison, Divergence]:
    model = onnx_model("llama")
    found = compare(model, mutate(model), steps=steps)
    assert not found.passed, found.summary()
    assert found.divergence is not None
    return found, found.divergence


def test_a_weight() -> None:
    found, where = divergence(lambda model: faulty_models.perturb_weight(model, column=7))
    assert (where.sequence, where.step, where.output) == (0, 0, "logits")
    assert where.index == (0, 0, 7)
    assert where.reference is not None
    assert where.candidate is not None
    assert abs(where.reference - where.candidate) > 1e-3
    assert found.max_abs_difference >= abs(where.reference - where.candidate)
    assert (len(found.sequences), found.steps_run) == (1, 0)


def test_a_scale() -> None:
    _, where = divergence(faulty_models.drop_scale)
    # One key is seen at the first position, so that the scale shows only from the second one on.
    assert (where.sequence, where.step, where.index[:2]) == (0, 0, (0, 1))


def test_a_mask_wrong_in_decode_only() -> None:
    _, where = divergence(faulty_models.hide_first_position_in_decode)
    assert (where.sequence, where.step, where.output) == (0, 1, "logits")


def test_a_cache_without_new_tokens() -> None:
    model = openvino_model("llama")
    found = compare(model, faulty_models.forget_new_state(model, "past_key_values.1.value"))
    assert found.divergence is not None
    assert (found.divergence.sequence, found.divergence.step) == (0, 1)
    assert found.steps_run == 1
    assert len(found.sequences[0].reference_ids[0]) == 2


def test_unwritten_caches() -> None:
    model = openvino_model("llama")
    found = compare(model, faulty_models.keep_old_state(model))
    assert found.divergence is not None
    assert (found.divergence.sequence, found.divergence.step) == (0, 1)


def test_an_unrecognized_broken_cache_is_found() -> None:
    model = onnx_model("llama")
    mutant = faulty_models.forget_new_values(model, "present.1.value")
    assert analyze_caches(mutant).cache("past_key_values.1.value").kind == "unknown"
    found = compare(model, mutant)
    assert found.divergence is not None
    assert (found.divergence.sequence, found.divergence.step) == (0, 1)


def test_a_candidate_failing_in_a_step() -> None:
    found, where = divergence(lambda model: faulty_models.fail_beyond(model, positions=6))
    assert (where.sequence, where.step, where.output, where.index) == (0, 2, None, ())
    assert "sequence 0, step 2: the reference runs, the candidate does not: ONNX Runtime failed" in found.summary()
    assert found.steps_run == 2


def test_a_failing_reference_is_not_a_finding() -> None:
    model = onnx_model("llama")
    with pytest.raises(UnsupportedError) as caught:
        compare(faulty_models.fail_beyond(model, positions=6), model)
    assert caught.value.id == "GP322"


def test_ignored_padding_is_found_in_the_padded_batch_only() -> None:
    found, where = divergence(faulty_models.ignore_padding)
    assert (where.sequence, where.step) == (2, 0)
    assert where.index[:2] == (1, 9), "the first position of the shorter prompt"
    assert found.steps_run == 6


def test_rows_sharing_one_mask() -> None:
    _, where = divergence(faulty_models.mask_all_rows_like_the_first)
    assert (where.sequence, where.step, where.index[0]) == (2, 0, 1)


def test_fully_masked_rows_becoming_nan() -> None:
    found, where = divergence(faulty_models.drop_nan_guards)
    assert (where.sequence, where.step, where.index[:2]) == (2, 0, (1, 9))
    assert where.candidate is not None
    assert math.isnan(where.candidate)
    assert math.isfinite(found.max_abs_difference)
    plain = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert plain["divergence"]["candidate"] == "nan"
    assert plain["divergence"]["index"] == list(where.index)


def test_a_missing_output() -> None:
    model = onnx_model("llama")
    found = compare(logits_forms.add_output(model, "extra", "logits"), model)
    assert found.divergence == Divergence(0, 0, "extra", (), None, None, "the candidate has no such output")
    assert "sequence 0, the prefill, output extra: the candidate has no such output" in found.summary()


def test_another_shape() -> None:
    found, where = divergence(logits_forms.last_logits_only)
    assert (where.output, where.index) == ("logits", ())
    assert where.reason == "shape [1, 1, 320], the reference has [1, 5, 320]"
    assert found.sequences[0].candidate_ids == ((),)


def test_the_summary_names_the_place() -> None:
    found, where = divergence(faulty_models.hide_first_position_in_decode)
    lines = found.summary().splitlines()
    assert lines[0].startswith("DIFFERENT: 1 sequence, 1 greedy step, ")
    assert f"sequence 0, step 1, output logits{list(where.index)}: reference " in lines[1]
    assert pickle.loads(pickle.dumps(found)) == found


def test_tolerances_are_honoured() -> None:
    model = onnx_model("llama")
    mutant = faulty_models.perturb_weight(model, column=7)
    assert compare(model, mutant, steps=1, atol=1e3).passed
    assert not compare(model, mutant, steps=1, atol=0, rtol=0).passed
