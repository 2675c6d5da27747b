"""Selections of the last token before the logits."""

from __future__ import annotations

import pytest
from support.last_token import FORMS, of_last_token

from graphpass.analysis.caches.last_logits import find_last_token, logits_of_rows
from graphpass.testing import run, tiny_model


@pytest.mark.parametrize("form", FORMS)
def test_the_selection_is_known(form):
    model = of_last_token(tiny_model("llama"), form)
    found = find_last_token(model)
    assert found is not None
    assert found.selector.op == {"gathered": "Gather"}.get(form, "Slice")
    assert [node.op for node in found.reshapes] == (["Squeeze"] if form == "squeezed" else [])
    assert (logits_of_rows(model) is None) == (form == "kept")


@pytest.mark.parametrize("passes", ["drop-identities", "last-logits", "last-logits{count=input}"])
def test_other_models_have_none(passes):
    model = run(tiny_model("llama"), passes)
    assert find_last_token(model) is None
    assert logits_of_rows(model) is None
