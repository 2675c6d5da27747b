"""Outputs that generation does not read; `drop-ports` has the tests on models with them."""

from __future__ import annotations

import pytest

from graphpass.analysis.caches.extra_outputs import extra_outputs
from graphpass.testing import FAMILIES, run, tiny_model


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_logits_and_caches_are_read(family):
    assert extra_outputs(tiny_model(family)) == ()


def test_hidden_states_are_read():
    assert extra_outputs(run(tiny_model("llama"), "expose-hidden-states{layers=[1]}")) == ()
