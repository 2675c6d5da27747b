"""Weights of two models are compared by digest."""

import shutil

from support.models import export

from graphpass.dialects import weights
from graphpass.io import load
from graphpass.reports.diff import diff_models


def test_weights_are_read_only_if_sizes_and_files_agree(tmp_path, monkeypatch):
    """The same bytes of the same file, and weights of other sizes, need no reading."""
    asked = []
    monkeypatch.setattr(weights, "digests_of", lambda places: asked.extend(places) or {})
    source = shutil.copytree(export("llama", "ov-stateful"), tmp_path / "in")
    diff_models(load(source), load(source))
    diff_models(load(source), load(export("llama", "ov-stateful-int8")))
    assert asked == []
