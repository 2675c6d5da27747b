"""Comparisons as data: the verdict, what follows it, and the report."""

import json
import math

import pytest

from graphpass.verify.comparison import Comparison, Divergence, PartProof, SequenceRun
from graphpass.verify.structure_proof import StructureProof

RUN = SequenceRun("prompt of 2 tokens", ((5, 6),), 2, ((7, 8, 9),), ((7, 8, 9),))
SAME = Comparison((RUN,), ("logits",), 0.25, None, ())
PARTED = Comparison((RUN, RUN), ("logits",), 2.0, Divergence(1, 2, "logits", (0, 3), 1.0, 3.0, "1 and 3"), ("a", "b"))


@pytest.mark.parametrize(
    ("divergence", "text"),
    [
        (Divergence(0, 0, None, (), None, None, "it failed"), "sequence 0, the prefill: it failed"),
        (Divergence(1, 3, "y", (0, 2), 1.0, 2.0, "far"), "sequence 1, step 3, output y[0, 2]: far"),
        (Divergence(0, 1, "y", (), None, None, "far", edits=("trim", "move")), "sequence 0, step 1 after trim, move, "),
        (Divergence(0, 0, None, (), None, None, "another mask", place="attention a"), "attention a: another mask"),
    ],
)
def test_a_divergence_is_one_line(divergence, text):
    assert str(divergence).startswith(text)


def test_the_verdict_names_outputs_counts_and_the_largest_difference():
    assert SAME.verdict == "same: 1 sequence, 2 greedy steps, logits compared; largest difference 0.25"
    assert PARTED.verdict == "DIFFERENT: 2 sequences, 4 greedy steps, logits compared; largest difference 2"
    assert SAME.greedy_ids == ((7, 8, 9), (7, 8, 9))


def test_the_first_divergence_of_two_comparisons_counts_in_both():
    both = SAME.followed_by(PARTED)
    assert not both.passed
    assert (len(both.sequences), both.max_abs_difference, both.skipped) == (3, 2.0, ("a", "b"))
    assert both.divergence.sequence == 2
    again = both.followed_by(PARTED)
    assert (again.divergence, again.skipped) == (both.divergence, ("a", "b"))
    assert SAME.followed_by(SAME).passed


def test_rounding_counts_as_a_divergence_until_structures_are_equal():
    rounded = Comparison((RUN,), ("logits",), 2.0, PARTED.divergence, ("a",), rounding="logits differ by 1 %")
    assert not rounded.passed
    passed = rounded.passed_as_rounding()
    assert passed.passed
    assert passed.skipped == ("a", "logits differ by 1 %")
    assert PARTED.passed_as_rounding() is PARTED


def test_a_divergence_without_a_sequence_has_a_place():
    found = SAME.diverging("attention 3", "its scale is 1, the candidate's 2")
    assert found.summary().splitlines()[1] == "  first at attention 3: its scale is 1, the candidate's 2"
    assert found.divergence.sequence == 1


@pytest.mark.parametrize(("equal", "chunks", "proven"), [(9, (), True), (8, (), False), (9, ("loop",), False)])
def test_models_are_proven_equal_if_all_operators_are(equal, chunks, proven):
    structure = StructureProof(9, equal, equal, chunks=chunks)
    comparison = Comparison((RUN,), ("logits",), 0.0, None, (), structure=structure)
    assert comparison.is_proven is proven
    assert not PARTED.is_proven
    assert not SAME.is_proven
    assert SAME.unproven == ("structures were not compared",)
    assert comparison.unproven[0].endswith(f"{equal} of 9 operators")


def test_the_summary_shows_ids_edits_and_inferred_parts():
    run = SequenceRun("prompt", ((5,),), 2, ((7, 8),), ((7, 9),), edits=((), ("trim to 3",)))
    layers = [PartProof(f"layer {place}", "a", "b", 3, "layer 0") for place in (1, 2, 4)]
    parts = (PartProof("layer 0", "a", "b", 3, None, 0.001), *layers)
    summary = Comparison((run,), ("logits",), 0.5, None, ("a",), ("w",), parts).summary().splitlines()
    assert summary[0].startswith("same: 4 parts, 1 sequence, ")
    assert summary[1].startswith("  part by part: ran layer 0, ")
    assert summary[2:4] == [
        "  largest differences: layer 0 0.001",
        "  inferred from layer 0: layers 1-2, 4, of equal structure in both models, with weights of the reference in "
        "the same places",
    ]
    assert summary[4:] == [
        "  sequence 0: prompt, 2 greedy steps",
        "    before step 2: trim to 3",
        "    reference 7 8",
        "    candidate 7 9",
        "  not compared: a",
        "  WARNING: w",
    ]


def test_numbers_that_json_lacks_are_text():
    content = Comparison(
        (RUN,), ("logits",), math.inf, Divergence(0, 0, "y", (), math.nan, -math.inf, "far"), ()
    ).to_json()
    assert (content["passed"], content["steps_run"], content["max_abs_difference"]) == (False, 2, "inf")
    assert (content["divergence"]["reference"], content["divergence"]["candidate"]) == ("nan", "-inf")
    assert json.loads(json.dumps(content, allow_nan=False)) == content
