"""Certificates as text, and results without one."""

import json

import pytest

from graphpass.artifacts.certificate import check_certificate, summarize_certificate
from graphpass.errors import ReadError, UsageError

CERTIFICATE = {
    "files": {"model.onnx": "0", "model.onnx.data": "1"},
    "sequences": [{"rows": 1, "tokens": 9, "selects_rows": False}, {"rows": 3, "tokens": 5, "selects_rows": False}],
    "largest_difference": 2e-05,
    "structure": None,
    "reach": None,
    "shared": [],
    "not_compared": [],
    "warnings": [],
}


def test_a_certificate_in_short():
    lines = summarize_certificate(CERTIFICATE).splitlines()
    assert lines[0].startswith("certificate holds: 2 files are unchanged since the proof (not a signature")
    assert lines[1:] == [
        "  whole models: 2 sequences of up to 9 tokens, up to 3 rows, rows not selected; largest difference 2e-05"
    ]


def test_parts_of_a_certificate_have_their_own_lines():
    more = {
        "sequences": [],
        "structure": {"equal": 3, "operators": 4, "unpadded": 4, "assumed": ["past >= 0"]},
        "reach": {"proofs": [{"subject": "masks", "equal": 2, "unpadded": 1, "sampled": [1, 2]}], "thresholds": []},
        "shared": ["w.data"],
        "not_compared": ["y"],
        "warnings": ["odd"],
    }
    assert summarize_certificate(CERTIFICATE | more).splitlines()[1:] == [
        "  whole models: 0 sequences of up to 0 tokens, up to 0 rows, rows not selected; largest difference 2e-05",
        "  equal for every input: 3 of 4 operators; without padding 4, given that past >= 0",
        "  masks equal for every batch, past and length: 2; without padding 1; at sampled lengths 2",
        "  lengths of the graphs: none",
        "  shared with other models, compared up to the bytes that it had: w.data",
        "  not compared: y",
        "  WARNING: odd",
    ]


def test_a_missing_result_and_a_result_without_a_manifest(tmp_path):
    with pytest.raises(ReadError, match="GP101"):
        check_certificate(tmp_path / "none")
    with pytest.raises(UsageError, match="GP269: there is no"):
        check_certificate(tmp_path)


@pytest.mark.parametrize(
    ("manifest", "error", "reason"),
    [
        ("{", ReadError, "GP118"),
        ("[1]", ReadError, "GP118.*expected a JSON object"),
        (json.dumps({"manifest": 1}), UsageError, "GP269.*has no certificate"),
        (json.dumps({"manifest": "0", "certificate": {}}), ReadError, "GP118.*has format '0'"),
    ],
)
def test_other_manifests_are_refused(tmp_path, manifest, error, reason):
    (tmp_path / "graphpass.json").write_text(manifest)
    with pytest.raises(error, match=reason):
        check_certificate(tmp_path)
