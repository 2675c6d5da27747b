"""Inputs and variables that attention reads as keys and values."""

import pytest

from graphpass.analysis.attention.axis_trace import BHLD
from graphpass.analysis.attention.reads import attention_reads
from graphpass.testing import run, tiny_model


def named(model):
    return {
        model.graph.nodes[index].name: [(read.role, read.labels) for read in reads]
        for index, reads in model.analysis(attention_reads).items()
    }


@pytest.mark.parametrize("name", ["llama", "phi3", "gpt2"])
def test_each_past_is_read_in_its_role(name):
    assert named(tiny_model(name)) == {
        f"past.{layer}.{role}": [(role, BHLD)] for layer in range(2) for role in ("key", "value")
    }


def test_variables_are_read_as_inputs_are():
    found = named(tiny_model("llama", "stateful", layers=1))
    assert sorted(role for ((role, _),) in found.values()) == ["key", "value"]


def test_permuted_caches_have_permuted_labels():
    model = run(tiny_model("llama", layers=1), "standardize-layout{to=BSHD}")
    assert named(model) == {
        f"past.0.{role}": [(role, ("batch", "sequence", "heads", "head_dim"))] for role in ("key", "value")
    }


def test_paths_name_copies_of_heads_and_the_appended_part():
    (key, *_) = tiny_model("llama", layers=1).analysis(attention_reads).values()
    assert key[0].has("join")
    assert not key[0].has("weights")


def test_operators_that_append_read_their_own_inputs():
    fused = run(tiny_model("llama", layers=1), "fuse-group-query-attention{context=64}")
    assert named(fused) == {}
