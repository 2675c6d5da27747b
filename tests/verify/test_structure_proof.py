"""Counts of equal operators, and their report."""

import pytest

from graphpass.verify.structure_proof import Fed, Region, StructureProof

ADD, MUL = Region("a", "Add", "it compares the batch size"), Region("m", "Multiply", "values differ")


@pytest.mark.parametrize(
    ("proof", "is_complete", "with_padding"),
    [
        (StructureProof(9, 9, 9), True, True),
        (StructureProof(9, 0, 9), True, False),
        (StructureProof(9, 8, 8), False, False),
        (StructureProof(9, 9, 9, chunks=("loop",)), False, False),
    ],
)
def test_a_proof_is_complete_if_all_operators_are_equal(proof, is_complete, with_padding):
    assert (proof.is_complete, proof.is_complete_with_padding) == (is_complete, with_padding)


def test_counts_state_their_conditions():
    proof = StructureProof(1200, 1000, 1100, rows=128, assumed=("x is 0", "y is true"), chunks=("a", "b"))
    condition = (
        ", up to position 128, given that x is 0, given that y is true, given that 2 chunks of tokens are linear "
        "attention, as random numbers show"
    )
    assert list(proof.counts()) == [
        f"equal for every input{condition}: 1,000 of 1,200 operators",
        f"equal for every input without padding{condition}: 1,100 of 1,200 operators",
    ]
    assert list(StructureProof(9, 0, 9).counts()) == ["equal for every input without padding: 9 of 9 operators"]
    assert list(StructureProof(9, 0, 0).counts()) == ["equal for every input: 0 of 9 operators"]


def test_regions_added_operators_and_runs_follow():
    fed = Fed(("v", "w", "x", "y", "z"), 1, MUL)
    proof = StructureProof(9, 7, 7, (Region("s", "Softmax", "no equal value"),), added=(ADD,), fed=fed)
    assert list(proof.in_words())[1:] == [
        "compared by numbers from Softmax s on: no equal value",
        "Add a: it compares the batch size",
        "1 run from random numbers for v, w, x, y, ...: values differ",
    ]
    assert str(Fed(reason="it has variables")) == "no runs from random numbers: it has variables"
    assert str(Fed(("v",), 2)) == "2 runs from random numbers for v: same"


def test_operators_may_differ_if_they_are_allowed():
    proof = StructureProof(9, 7, 7, added=(ADD,), fed=Fed(("v",), 1, MUL))
    assert proof.difference(()) is ADD
    later = proof.difference({"a"})
    assert (later.node, later.reason) == ("m", "1 run from random numbers for v: values differ")
    assert proof.difference({"a", "m"}) is None
    assert StructureProof(9, 9, 9).difference(()) is None
