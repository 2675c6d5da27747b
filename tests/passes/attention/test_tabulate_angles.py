"""`tabulate-angles`: rows of tables in place of cosines, proven for every position that a table has."""

from __future__ import annotations

import pytest
from support.loaded import exported, run_once

import graphpass
from graphpass.engine.passes import Skipped
from graphpass.testing import parse_model
from graphpass.verify import compare
from graphpass.verify.structure.proof import compare_structures

PIPELINE = "tabulate-angles{positions=64}"


def computed(model) -> int:
    return sum(1 for _ in model.graph.of_op("Cos", "Sin"))


@pytest.mark.parametrize(
    ("place", "tables"),
    [
        ("llama/onnx", 2),
        ("gemma3_text/ov-stateful", 4),
        pytest.param("phi3/onnx", 2, marks=pytest.mark.slow),
        pytest.param("deepseek_v3/onnx", 2, marks=pytest.mark.slow),
    ],
)
def test_every_row_is_proven(place, tables):
    result = run_once(exported(place), PIPELINE)
    assert result.records[-1].result.statistics == {"tables": tables}
    assert (computed(exported(place)) > 0, computed(result.model)) == (True, 0)
    found = compare_structures(exported(place), result.model)
    assert found is not None
    assert found.equal == found.operators > 0
    assert compare(exported(place), result.model, steps=3).passed
    assert not run_once(result.model, PIPELINE).records[-1].result.changed


def test_a_wrong_row_is_found():
    model = run_once(exported("llama/onnx"), PIPELINE).model.clone()
    rewriter = model.rewriter()
    rows = next(node for node in model.graph.of_op("Gather") if node.name.startswith("angles/"))
    write = rewriter.under("moved")
    rewriter.redirect(rows, 1, write.op("Maximum", rows.source(1), write.number(1, "i64")))
    rewriter.finish()
    found = compare_structures(exported("llama/onnx"), model)
    assert found is not None
    assert found.unpadded < found.operators


@pytest.mark.parametrize("place", ["gptj/onnx", "gpt2/onnx"])
def test_rows_of_tables_stay(place):
    result = run_once(exported(place), f"lower-operators,{PIPELINE}").records[-1].result
    assert (result.changed, result.notes) == (False, ())


def test_numbers_of_the_longest_position_stay():
    """LongRoPE chooses its frequencies by the largest position of a step."""
    model = parse_model(
        """
        %input_ids = Parameter : i64[batch, length]
        %position_ids = Parameter : i64[batch, length]
        %vectors = Constant : f32[32, 8]
        %hidden = Gather(%vectors, %input_ids) {axis=0}
        %longest = ReduceMax(%position_ids) {axes=[0, 1], keep=true}
        %moved = Subtract(%longest, %position_ids)
        %numbers = Convert(%moved) {to=f32}
        %axes = Unsqueeze(%numbers) {axes=[2]}
        %cosines = Cos(%axes)
        %turned = Multiply(%hidden, %cosines)
        Result(%turned) {name=logits}
        """,
        "onnx",
    )
    result = graphpass.PassManager(graphpass.parse(PIPELINE)).run(model).records[-1].result
    assert not result.changed
    assert [note.partition(": ")[0] for note in result.notes] == ["cosines is still computed"]


def test_a_model_counting_positions_in_the_graph():
    assert isinstance(run_once(exported("gpt_oss/onnx"), PIPELINE).records[-1].result, Skipped)
