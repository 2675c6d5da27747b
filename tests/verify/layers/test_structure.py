"""One layer of each structure runs in place of all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.loaded import converted, exported
from verify.layers.faults_of_layers import RAN, TINY

from graphpass.verify import compare_within

if TYPE_CHECKING:
    pass


def test_one_layer_of_each_structure_runs_in_place_of_a_large_model() -> None:
    model = exported("llama_12l/onnx")
    found = compare_within(model, converted(model).model, TINY, steps=1)
    assert found.passed, found.summary()
    # Layer 0 of the result computes half of head_dim for all layers.
    assert [part.name for part in found.parts if part.like is None] == [*RAN[:3], "layer 1", "head"]
    assert [part.like for part in found.parts[5:-1]] == ["layer 1", "feed-forward 0"] * 10
    assert "inferred from layer 1: layers 2-11, of equal structure" in found.summary()
    assert "inferred from feed-forward 0: feed-forwards 1-11, of equal structure" in found.summary()
    ends = [part.reference_end for part in found.parts[7:9]]
    assert ends == ["/model/layers.3/Add_output_0", "/model/layers.3/Add_1_output_0"]
    assert found.reach is not None
    assert (found.reach.masks, found.reach.angles) == (2, 2)


def test_one_layer_runs_if_all_share_a_table() -> None:
    """The result alone has the cosines and sines of its rotary embedding."""
    made = converted(exported("llama_12l/onnx"), "ort-genai{context=128}").model
    found = compare_within(exported("llama_12l/onnx"), made, TINY, padding="right")
    assert found.passed
    assert [part.name for part in found.parts if part.like is None] == RAN
    assert found.reach is not None
    assert not any(proof.sampled for proof in found.reach.proofs), "past lengths are those of the part's own caches"


def test_a_table_of_one_layer_alone_is_found() -> None:
    made = converted(exported("llama_12l/onnx"), "ort{context=128}").model.clone()
    rewriter = made.rewriter()
    late = list(made.graph.of_op("RotaryEmbedding"))[-1]
    port = next(port for port, value in enumerate(late.inputs) if value is not None and "cos_cache" in value.name)
    table = made.graph.constant(late.source(port)).copy()
    table[2:] *= 1.01
    rewriter.redirect(late, port, rewriter.under("mutant").constant(table, "cos_cache"))
    rewriter.finish()
    found = compare_within(exported("llama_12l/onnx"), made, TINY)
    assert not found.passed
    assert found.parts[-1].name == "layer 11"


@pytest.mark.slow
def test_all_layers_run_on_request() -> None:
    model = exported("llama_12l/onnx")
    found = compare_within(model, converted(model, "ort").model, all_layers=True, steps=0)
    assert found.passed
    assert len(found.parts) == 26
    assert {part.like for part in found.parts} == {None}
