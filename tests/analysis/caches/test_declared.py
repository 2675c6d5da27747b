"""What a user says of a cache is believed where the graph does not tell, and refused where it tells otherwise."""

from __future__ import annotations

import pytest
from support.models import export
from support.unknown_caches import decoder_with_unknown_cache

import graphpass
from graphpass.analysis.caches.declared import contradiction
from graphpass.errors import UsageError
from graphpass.ir.cache import Axes
from graphpass.ir.declaration import parse_declaration


def declared(model, *texts):
    model.declare(map(parse_declaration, texts))
    return graphpass.analyze_caches(model)


@pytest.mark.parametrize("axis", [0, 1])
def test_declared_kv_cache_without_attention(axis):
    model = decoder_with_unknown_cache(axis)
    (cache,) = graphpass.analyze_caches(model).caches
    assert (cache.kind, cache.layer) == ("unknown", None)
    inventory = declared(model, f"past=kv,sequence={axis}")
    (cache,) = inventory.caches
    assert (inventory.kind, cache.kind, cache.role, cache.layer) == ("kv", "kv", "unknown", 0)
    assert cache.axes == Axes(batch=1 - axis, sequence=axis)
    assert cache.evidence[-1] == f"declared to be kv, sequence on axis {axis}; in the graph axis {axis} grows"


def test_roles_and_axes_are_taken_over():
    (cache,) = declared(decoder_with_unknown_cache(), "past=kv,sequence=1,batch=0,head_dim=2,role=key").caches
    assert (cache.role, cache.axes) == ("key", Axes(batch=0, sequence=1, head_dim=2))


def test_a_cache_of_a_size_from_an_input_is_declared():
    model = decoder_with_unknown_cache(keep="chosen")
    assert graphpass.analyze_caches(model).caches[0].kind == "unknown"
    (cache,) = declared(model, "past=kv,sequence=1").caches
    assert cache.kind == "kv"
    assert cache.evidence[-1].endswith("in the graph axis 1 has an unknown size")


@pytest.mark.parametrize(
    ("keep", "text", "against"),
    [
        ("all", "past=linear", "it grows along axis 1"),
        ("all", "past=kv,sequence=2", "it grows along axis 1"),
        ("all", "past=kv,sequence=3", "it has 3 axes: sequence=3 is out of range"),
        ("all", "past=cross", "each step replaces it"),
    ],
)
def test_declarations_against_the_graph_are_refused(keep, text, against):
    with pytest.raises(UsageError, match="GP219") as error:
        declared(decoder_with_unknown_cache(keep=keep), text)
    assert error.value.message.endswith(against)


def test_declarations_of_known_caches_are_refused():
    model = graphpass.load(export("lfm2", "ov-stateless"))
    conv, key = (next(c for c in graphpass.analyze_caches(model).caches if c.role == role) for role in ("conv", "key"))
    with pytest.raises(UsageError, match="it is linear: replaced each step"):
        declared(model, f"{conv.name}=kv,sequence=2")
    with pytest.raises(UsageError, match="sequence is not on axis 1: it is on axis 2"):
        declared(model, f"{key.name}=kv,sequence=1")
    before = graphpass.analyze_caches(graphpass.load(export("lfm2", "ov-stateless")))
    assert declared(model, f"{key.name}=kv,sequence=2") == before


def test_declaring_a_tensor_without_present():
    with pytest.raises(UsageError, match="GP217") as error:
        declared(decoder_with_unknown_cache(), "passed=kv,sequence=1")
    assert "the model carries past" in str(error.value)


def test_a_state_of_constant_size_is_not_a_kv_cache():
    """Its kind is known, so that it needs no declaration, and takes no wrong one."""
    with pytest.raises(UsageError, match="it is linear"):
        declared(decoder_with_unknown_cache(keep="same"), "past=kv,sequence=1")


@pytest.mark.parametrize(
    ("text", "fact"),
    [("past=kv,sequence=1", None), ("past=linear", "it grows along axis 1"), ("past=kv,sequence=9", "axes")],
)
def test_contradictions_of_declarations(text, fact):
    model = decoder_with_unknown_cache()
    (cache,) = graphpass.analyze_caches(model).caches
    found = contradiction(model, cache, parse_declaration(text))
    assert found is None if fact is None else fact in found
