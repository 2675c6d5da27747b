"""Comparisons that edit the caches of both models."""

from __future__ import annotations

import pickle

import pytest
from support.loaded import onnx_model, openvino_model, reshaped
from support.models import export
from verify import faulty_models

from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse
from graphpass.errors import UsageError
from graphpass.io import load
from graphpass.ir.model import Model
from graphpass.verify import compare


def run_passes(model: Model, passes: str) -> Model:
    return PassManager(parse(passes)).run(model).model


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("llama", "onnx", "ov-stateful"),
        ("llama", "onnx-genai", "ov-stateless"),
        ("gemma3_text", "onnx", "ov-stateful"),
        ("lfm2", "ov-stateless", "ov-stateful"),
        ("mamba", "ov-stateless", "ov-stateful"),
    ],
)
def test_edits_of_exports_of_one_model_agree(name: str, first: str, second: str) -> None:
    found = compare(load(export(name, first)), load(export(name, second)), steps=1, edits=True)
    assert found.passed, found.summary()
    assert found.max_abs_difference < 1e-4
    edited = [run for run in found.sequences if run.description.startswith("edits")]
    done = {edit.split()[0] for run in edited for edits in run.edits for edit in edits}
    moves = {"reorder"} if name not in {"lfm2", "mamba"} else set()
    assert done == {"trim", "rewind", "snapshot", "restore", "select"} | moves
    assert all(len(run.edits) == run.steps for run in edited)
    assert all(not run.edits for run in found.sequences[:3])
    assert pickle.loads(pickle.dumps(found)) == found


def test_the_same_edits_every_time() -> None:
    model = onnx_model("gpt2")
    assert compare(model, model, steps=1, edits=True) == compare(model, model, steps=1, edits=True)


def test_a_cache_ignoring_beams_is_found() -> None:
    model = openvino_model("llama")
    mutant = faulty_models.ignore_beams(model, "past_key_values.1.value")
    found = compare(model, mutant, steps=3)
    assert found.divergence is not None
    assert (found.divergence.sequence, found.divergence.step, found.divergence.output) == (3, 2, "logits")
    assert found.divergence.edits == ("select 4,3,2,1,0",)
    assert "  first at sequence 3, step 2 after select 4,3,2,1,0, output logits[0, 0, " in found.summary()
    assert found.sequences[3].edits == ((), ("select 4,3,2,1,0",))


@pytest.mark.slow
def test_a_tree_is_compared_with_its_branches() -> None:
    model = openvino_model("llama")
    tree = run_passes(model, "add-tree-mask")
    for reference, candidate in ((model, tree), (tree, model), (tree, tree)):
        found = compare(reference, candidate, steps=0, edits=True)
        assert found.passed, found.summary()
        assert found.sequences[5].description == "trees of drafts, prompt of 5 tokens"
        assert found.sequences[5].edits[0] == ("tree -1,0,0,1,-1,2 of which 0,2,5 is kept",)


def test_an_ignored_tree_mask_is_found_by_trees_only() -> None:
    tree = run_passes(openvino_model("llama"), "add-tree-mask")
    found = compare(openvino_model("llama"), faulty_models.ignore_tree(tree), steps=2, edits=True)
    assert found.divergence is not None
    assert (found.divergence.sequence, found.divergence.step) == (7, 1)


def test_an_impossible_comparison_gets_a_hint() -> None:
    model = onnx_model("llama")
    fixed = run_passes(model, "static-cache{capacity=16}")
    with pytest.raises(UsageError, match="which a comparison over 12 steps requires") as caught:
        compare(model, fixed)
    assert caught.value.id == "GP267"
    assert "--steps" in str(caught.value.hint)
    assert compare(model, fixed, steps=4).passed


def test_slots_of_linear_caches_do_not_move() -> None:
    model = openvino_model("lfm2")
    found = compare(model, model, steps=0, edits=True)
    assert found.skipped == (
        "reorder: the reference is of kind hybrid, and only kv caches have slots to move",
        "reorder: the candidate is of kind hybrid, and only kv caches have slots to move",
    )


def test_selection_from_one_row_is_refused() -> None:
    model = reshaped(openvino_model("llama", "ov-stateless"), batch=1)
    found = compare(model, model, steps=0, edits=True)
    assert "select: the batch is fixed at 1" in found.skipped
    assert [run.description for run in found.sequences[2:]] == ["edits, prompt of 5 tokens"]
