"""Tiny models of families."""

import pytest

from graphpass.errors import UsageError
from graphpass.testing import assert_fused, tiny_model


def test_a_stateful_model_has_variables():
    assert_fused(tiny_model("llama", "stateful", layers=1), ReadValue=2, Assign=2)


def test_tiny_models_are_not_shared():
    model = tiny_model("gpt2")
    model.rewriter().drop([node for node in model.graph.of_op("Result") if node.name != "logits"])
    assert len(tiny_model("gpt2").outputs) == 5


def test_an_unknown_family():
    with pytest.raises(UsageError, match="GP274: there is no tiny model of gpt5"):
        tiny_model("gpt5")
