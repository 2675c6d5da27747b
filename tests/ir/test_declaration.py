"""What a user says of caches: its text, the note that keeps it, and where it is kept."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as some
from support.models import export
from support.unknown_caches import decoder_with_unknown_cache

import graphpass
from graphpass.errors import ReadError, UsageError
from graphpass.ir.cache import Axes
from graphpass.ir.declaration import Declaration, declarations_from, note_of, parse_declaration


def test_every_part_of_a_declaration_is_read():
    assert parse_declaration("a.0=kv,batch=1,heads=0,sequence=2,head_dim=3,role=value") == Declaration(
        "a.0", "kv", "value", Axes(1, 0, 2, 3)
    )
    assert parse_declaration("a=linear") == Declaration("a", "linear")
    assert parse_declaration("a=cross,role=encoder_hidden").role == "encoder_hidden"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a", "'' is not a kind: kv, linear, cross"),
        ("a=hybrid", "'hybrid' is not a kind"),
        ("=linear", "the name of the cache is missing"),
        ("a=kv", "a kv cache requires sequence=NUMBER"),
        ("a=kv,sequence", "each entry must be AXIS=NUMBER"),
        ("a=kv,sequence=-1", "expected the index of an axis for sequence, counted from 0, got '-1'"),
        ("a=kv,sequence=two", "expected the index of an axis for sequence"),
        ("a=kv,sequence=1,length=2", "'length' is not an axis"),
        ("a=kv,sequence=1,batch=1", "two axes have the same number"),
        ("a=kv,sequence=1,role=conv", "'conv' is not a role of a kv cache: key, value, indexer_key, unknown"),
        ("a=linear,sequence=1", "a linear cache has no sequence axis"),
    ],
)
def test_empty_declarations_are_refused(text, reason):
    with pytest.raises(UsageError, match="GP218") as error:
        parse_declaration(text)
    assert reason in error.value.message
    assert "NAME=kv,sequence=2" in str(error.value)


kinds = some.sampled_from([("kv", "key"), ("kv", "unknown"), ("linear", "conv"), ("cross", "cross_value")])


@some.composite
def declarations(draw):
    kind, role = draw(kinds)
    places = draw(some.permutations(range(4)))
    axes = Axes(batch=places[0], sequence=places[1] if kind != "linear" else None)
    return Declaration(draw(some.text(min_size=1)), kind, role, axes)


@given(some.lists(declarations(), unique_by=lambda one: one.name))
def test_a_note_keeps_declarations(said):
    assert declarations_from(note_of(said)) == tuple(said)


@pytest.mark.parametrize(
    "note", ["{", "[]", '{"a": 1}', '{"a": {"kind": "x"}}', '{"a": {"kind": "kv", "sequence": "x"}}']
)
def test_a_damaged_note_is_refused(note):
    with pytest.raises(ReadError, match="GP109"):
        declarations_from(note)


@pytest.mark.parametrize("source", ["onnx", "ov-stateless"])
def test_a_model_keeps_declarations(source, tmp_path):
    said = (Declaration("past_key_values.0.key", "kv", "key", Axes(sequence=2)),)
    model = graphpass.load(export("llama", source))
    assert model.declarations == ()
    model.declare(said)
    suffix = "onnx" if source == "onnx" else "xml"
    graphpass.save(model, tmp_path / f"model.{suffix}")
    assert model.clone().declarations == said
    assert graphpass.load(tmp_path / f"model.{suffix}").declarations == said


def test_a_second_declaration_replaces_the_first():
    model = decoder_with_unknown_cache()
    model.declare([Declaration("past", "linear")])
    model.declare([Declaration("past", "kv", axes=Axes(sequence=1))])
    assert [one.kind for one in model.declarations] == ["kv"]
    assert len(model.proto.metadata_props) == 1
