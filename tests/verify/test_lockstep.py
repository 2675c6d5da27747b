"""Models that compute the same pass, and say what was run."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy
import pytest
from support import logits_forms
from support.loaded import onnx_model, openvino_model, reshaped
from support.models import export, exporters, reference
from verify import faulty_models

import graphpass
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.errors import UnsupportedError, UsageError
from graphpass.io import load
from graphpass.verify import Comparison, compare
from graphpass.verify.difference import Tolerance


def same(first: tuple[str, str], second: tuple[str, str], **options: Any) -> Comparison:
    return compare(load(export(*first)), load(export(*second)), **options)


#: Windows of 8 reach over padding, which one of the two counts.
MISREAD = "right padding: the reference has other results for rows alone"
ENTERS = "right padding: it enters linear caches"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("first", "second", "skipped"),
    [
        (("llama", "onnx"), ("llama", "ov-stateful"), ()),
        (("llama", "onnx-nocache"), ("llama", "ov-stateless"), ()),
        (("gpt2", "onnx"), ("gpt2", "ov-stateful"), ()),
        (("gemma3_text", "onnx"), ("gemma3_text", "ov-stateful"), (MISREAD,)),
        (("lfm2", "ov-stateless"), ("lfm2", "ov-stateful"), (ENTERS,)),
        (("mamba", "ov-stateless"), ("mamba", "ov-stateful"), (ENTERS,)),
    ],
)
def test_exports_of_one_model(first: tuple[str, str], second: tuple[str, str], skipped: tuple[str, ...]) -> None:
    found = same(first, second)
    assert found.passed, found.summary()
    assert found.divergence is None
    assert [run.steps for run in found.sequences[:4]] == [12, 12, 12, 4]
    assert [run.steps for run in found.sequences if run.description.endswith("on the right")] == [3] * (not skipped)
    assert found.skipped == skipped
    assert found.outputs == ("logits",)
    assert found.max_abs_difference < 1e-4
    assert [len(run.prompt_ids) for run in found.sequences[:4]] == [1, 1, 3, 5]
    assert all(run.reference_ids == run.candidate_ids for run in found.sequences)


def test_a_copy_of_padding_that_enters_linear_caches_is_the_same() -> None:
    """A bias after the mask writes padding into the convolution's cache, before and after the pass."""
    model = load(exporters("transformers-onnx", "qwen3_5_text")).clone()
    cache = next(cache for cache in analyze_caches(model).of_kind("linear") if len(cache.shape or ()) == 3)
    graph, rewriter = model.graph, model.rewriter()
    written = graph.backward(
        graph.writes[str(cache.write)].inputs, lambda node: node.inputs if node.op != "MatMul" else ()
    )
    (product,) = [node.outputs[0] for node in written if node.op == "MatMul"]
    write = rewriter.under("biased")
    bias = write.constant(numpy.full(product.shape[-1], 0.3, numpy.float32), "bias")
    rewriter.redirect_uses(product, write.op("Add", product, bias))
    rewriter.finish()
    model.mark_edited()
    found = compare(model, graphpass.PassManager(graphpass.parse("expose-position-ids")).run(model).model)
    assert found.passed, found.summary()
    assert any("both models have other results for rows alone" in line for line in found.skipped)


def test_a_given_prompt_generates_the_tokens_of_pytorch() -> None:
    wanted = reference("llama")
    found = same(("llama", "onnx"), ("llama", "ov-stateful"), prompt_ids=tuple(wanted["prompt_ids"]), steps=11)
    expected = tuple(wanted["greedy_ids"])
    assert found.greedy_ids == (expected, expected)
    assert found.sequences[0].prompt_ids == (tuple(wanted["prompt_ids"]),)
    assert found.steps_run == 40


def test_the_same_every_time() -> None:
    first, second = (same(("gpt2", "onnx"), ("gpt2", "onnx"), steps=2) for _ in range(2))
    assert first == second
    assert first.max_abs_difference == 0


def test_sequences_differ_in_length_and_padding_shortens_rows() -> None:
    runs = same(("gpt2", "onnx"), ("gpt2", "onnx"), steps=0, prompt_ids=(1,)).sequences
    assert [[len(prompt) for prompt in run.prompt_ids] for run in runs] == [[1], [7], [7, 1, 5]]
    assert "padded on the left" in runs[2].description


def test_a_fixed_batch_is_compared_without_padding() -> None:
    model = reshaped(openvino_model("llama", "ov-stateless"), batch=2)
    found = compare(onnx_model("llama"), model, steps=2)
    assert found.passed
    assert found.skipped == ("padded batch: the batch is fixed at 2",)
    assert [len(run.prompt_ids) for run in found.sequences] == [2, 2, 2]
    assert found.sequences[2].edits == ((), ("select 1,0",), ("select 0,0",))


def test_unlike_fixed_batches_are_refused() -> None:
    model = openvino_model("llama", "ov-stateless")
    with pytest.raises(UnsupportedError) as caught:
        compare(reshaped(model, batch=1), reshaped(model, batch=2))
    assert caught.value.id == "GP331"


def test_without_a_mask_input_the_batch_is_not_padded() -> None:
    model = onnx_model("llama")
    maskless = faulty_models.drop_mask_input(model)
    found = compare(model, maskless, steps=2)
    assert found.passed, found.summary()
    assert found.skipped == ("padding: no input attention_mask in the candidate",)
    assert [len(prompt) for prompt in found.sequences[2].prompt_ids] == [5, 5, 5]


def test_outputs_of_the_candidate_alone_are_not_compared() -> None:
    model = onnx_model("llama")
    found = compare(model, logits_forms.add_output(model, "extra", "logits"), steps=1)
    assert found.passed
    assert found.skipped == ("output extra: only the candidate has it",)


def test_outputs_of_another_layout_are_not_compared_under_padding() -> None:
    model = onnx_model("llama")
    turned = logits_forms.add_output(model, "turned", "logits", order=(0, 2, 1))
    found = compare(turned, turned, steps=1)
    assert found.passed
    assert found.outputs == ("logits", "turned")
    assert found.skipped == ("output turned under padding: its axes are not [batch, length]",)


def test_the_last_logits_alone_are_enough() -> None:
    model = logits_forms.last_logits_only(onnx_model("llama"))
    assert compare(model, model, steps=2).passed


def test_results_survive_pickle_and_json() -> None:
    found = same(("gpt2", "onnx"), ("gpt2", "onnx"), steps=1)
    assert pickle.loads(pickle.dumps(found)) == found
    plain = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert plain["passed"] is True
    assert plain["divergence"] is None
    assert plain["steps_run"] == 9
    assert plain["sequences"][0]["steps"] == 1
    assert found.summary().startswith("same: 7 sequences, 9 greedy steps, logits compared; largest difference 0\n")


@pytest.mark.parametrize(
    "options", [{"steps": -1}, {"prompt_ids": ()}, {"prompt_ids": (1, 320)}, {"prompt_ids": (-1,)}]
)
def test_impossible_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        same(("llama", "onnx"), ("llama", "onnx"), **options)
    assert caught.value.id == "GP250"


def test_models_without_common_outputs_are_refused() -> None:
    model = onnx_model("llama")
    with pytest.raises(UnsupportedError, match="logits against scores") as caught:
        compare(model, logits_forms.rename_logits(model, "scores"))
    assert caught.value.id == "GP330"


def test_tolerance_follows_the_computation_type() -> None:
    """Weights that are only stored in f16 do not widen it."""
    assert Tolerance.for_models(load(export("llama", "onnx"))) == Tolerance(1e-3, 1e-3)
    assert Tolerance.for_models(load(export("llama", "ov-stateful-fp16"))) == Tolerance(1e-3, 1e-3)
    half = load(export("llama", "onnx-fp16"))
    assert Tolerance.for_models(half, half) == Tolerance(0.05, 0.05)


def test_rounded_weights_count_beside_the_type() -> None:
    """Rounding weights of 12 layers alone moves logits by 0.12."""
    models = load(export("llama", "onnx")), load(export("llama", "onnx-fp16"))
    assert Tolerance.for_models(*models) == Tolerance(0.2, 0.2, "f16")
