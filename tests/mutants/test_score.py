"""A sample of the faults that `make mutants` puts into results is found."""

import pytest

from mutants.faults import faults
from mutants.score import PAIRS, converted, judged

#: What no run of both models triggers, and the report does not call proven.
UNSEEN = {
    "logits of positions beyond those of the mask",
    "logits of 128 new tokens",
    "first position hidden in rows with more than 8 pads",
    "logits are squares of roots",
    "a root times 0 added to logits",
    "positions in 16 bits",
    "positions in 8 bits",
}


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS[::6])
def test_faults_are_found(pair):
    reference, result, padding = converted(pair)
    chosen = list(faults(result, turn=1))[::5]
    assert chosen
    verdicts = {fault.kind: judged(reference, result, padding, fault) for fault in chosen}
    assert "proven" not in verdicts.values()
    assert {kind for kind, verdict in verdicts.items() if verdict == "listed"} <= UNSEEN
