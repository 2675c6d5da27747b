"""Fingerprints of findings."""

from dataclasses import replace

from matrix.cells import failed


def test_fingerprints_stay_when_numbers_change():
    before, after = failed(3), failed(3)
    slower = tuple(replace(one, message=f"{one.message}0") for one in after.problems)
    assert before.fingerprints == replace(after, problems=slower).fingerprints
    assert len(set(before.fingerprints)) == 3
    assert not set(before.fingerprints) & set(failed(3, label="gpu").fingerprints)
    assert not set(before.fingerprints) & set(failed(3, node="other").fingerprints)
    alike = replace(before, problems=before.problems[:1] * 3)
    assert len(set(alike.fingerprints)) == 3
