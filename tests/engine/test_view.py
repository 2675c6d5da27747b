"""Views of other programs: the verdict by problems, doubts and unknown caches, and models that a view is not for."""

import pytest
from support.caches import cache, inventory

from graphpass.engine.view import is_mistaken, judged, listed, names_of, not_onnx, not_stateful_ir
from graphpass.testing import parse_model

ONNX = parse_model("%x = Parameter : f32[4]\n%y = Relu(%x)\nResult(%y) {name=y}")
IR = parse_model('%x = Parameter {names=["a", "b"]} : f32[4]\n%y = Relu(%x)\nResult(%y) {name=y}', "openvino")


@pytest.mark.parametrize(
    ("given", "verdict", "reasons"),
    [
        ({"problems": []}, "agrees", ()),
        ({"problems": [], "remarks": ["a remark"]}, "agrees", ("a remark",)),
        ({"problems": [], "doubts": ["a doubt"]}, "cannot tell", ("a doubt",)),
        ({"problems": ["wrong", "wrong"], "doubts": ["a doubt"]}, "misreads", ("wrong",)),
    ],
)
def test_problems_outweigh_doubts(given, verdict, reasons):
    view = judged("program", inventory(cache()), {"k": "kv"}, **given)
    assert (view.verdict, view.reasons[: len(reasons)]) == (verdict, reasons)
    assert len(set(view.reasons)) == len(view.reasons)


def test_a_cache_of_unknown_kind_is_a_doubt_and_one_that_is_not_seen_is_nothing():
    caches = inventory(cache("a", kind="unknown"), cache("b"))
    view = judged("program", caches, {"b": "kv"}, [])
    assert [entry.sees for entry in view.caches] == ["nothing", "kv"]
    assert view.verdict == "cannot tell"
    assert "for a: the evidence is not conclusive" in view.reasons[0]


@pytest.mark.parametrize(
    ("model", "caches", "verdict"),
    [(ONNX, [cache()], None), (IR, [cache()], "not applicable"), (ONNX, [], "not applicable")],
)
def test_programs_for_onnx(model, caches, verdict):
    view = not_onnx("program", model, inventory(*caches))
    assert (view and view.verdict) == verdict


@pytest.mark.parametrize(
    ("model", "caches", "stateful", "verdict"),
    [
        (IR, [cache()], True, None),
        (IR, [], True, "not applicable"),
        (ONNX, [cache()], False, "cannot tell"),
        (IR, [cache()], False, "cannot tell"),
        (IR, [cache(), cache("c", kind="cross")], True, "not applicable"),
    ],
)
def test_programs_for_stateful_ir(model, caches, stateful, verdict):
    view = not_stateful_ir("program", model, inventory(*caches, stateful=stateful), finds="names", cross="no cross")
    assert (view and view.verdict) == verdict


@pytest.mark.parametrize(
    ("known", "right"),
    [
        ({"kind": "kv"}, {"kv"}),
        ({"kind": "linear"}, {"linear"}),
        ({"kind": "other", "role": "counter"}, {"nothing"}),
        ({"kind": "other", "role": "recurrent"}, {"nothing", "linear"}),
        ({"kind": "unknown"}, {"kv", "linear", "cross", "nothing"}),
    ],
)
def test_kinds_that_are_right(known, right):
    assert {sees for sees in ("kv", "linear", "cross", "nothing") if not is_mistaken(cache(**known), sees)} == right


@pytest.mark.parametrize(("names", "text"), [("a", "a"), ("ab", "a and b"), ("abcd", "a and 3 more")])
def test_names_in_a_sentence(names, text):
    assert listed(names) == text


def test_ports_of_ir_have_several_names():
    assert [names for _, names in names_of(IR, IR.inputs)] == [{"a", "b"}]
    assert [names for _, names in names_of(ONNX, ONNX.inputs)] == [{"x"}]
