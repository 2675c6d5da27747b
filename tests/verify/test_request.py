"""Settings of a comparison: their range, and what they imply."""

import math

import pytest

from graphpass.errors import UsageError
from graphpass.verify.difference import Tolerance
from graphpass.verify.request import ProofRequest
from graphpass.verify.structure_proof import StructureProof


@pytest.mark.parametrize("settings", [{"steps": -1}, {"atol": -1e-3}, {"rtol": math.nan}, {"atol": math.nan}])
def test_numbers_out_of_range_are_refused(settings):
    with pytest.raises(UsageError, match="expected 0 or more") as error:
        ProofRequest(**settings)
    assert error.value.id == "GP250"


def test_missing_tolerances_are_the_usual_ones():
    usual = Tolerance(1e-3, 2e-3)
    assert ProofRequest().tolerance(usual) == usual
    assert ProofRequest(atol=0.0).tolerance(usual) == Tolerance(0.0, 2e-3)
    assert ProofRequest(rtol=0.5).tolerance(usual) == Tolerance(1e-3, 0.5)


@pytest.mark.parametrize(
    ("settings", "expected"), [({}, True), ({"steps": 0}, False), ({"atol": 0.1}, False), ({"rtol": 0.0}, False)]
)
def test_weights_are_compared_without_given_tolerances(settings, expected):
    assert ProofRequest(**settings).is_strict is expected


def test_proofs_of_structures_decide_what_runs():
    assert not ProofRequest().is_proven
    request = ProofRequest(structure=StructureProof(5, 4, 5))
    assert (request.is_proven, request.is_proven_with_padding) == (True, False)
    assert ProofRequest(structure=StructureProof(5, 5, 5)).is_proven_with_padding
