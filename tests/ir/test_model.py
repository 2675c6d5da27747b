"""Analyses of a model, cached until it is edited."""

import pytest

from graphpass.errors import UnsupportedError, UsageError
from graphpass.testing import parse_model

RELU = "%x = Parameter : f32[4]\n%y = Relu(%x)\nResult(%y) {name=y}"


@pytest.fixture(params=["onnx", "openvino"])
def model(request):
    return parse_model(RELU, request.param)


def test_analyses_are_cached_until_an_edit(model):
    calls = []

    def count(given):
        calls.append(given)
        return len(given.graph.nodes)

    graph, edits = model.graph, model.edits
    assert (model.analysis(count), model.analysis(count), len(calls)) == (3, 3, 1)
    assert model.graph is graph
    model.mark_edited()
    assert (model.edited, model.edits) == (True, edits + 1)
    assert model.analysis(count) == 3
    assert len(calls) == 2
    assert model.graph is not graph


def test_failures_of_an_analysis_are_those_of_a_malformed_graph():
    model = parse_model(RELU)

    def fail(_):
        raise IndexError("out of range")

    with pytest.raises(IndexError):
        model.analysis(fail)
    model.proto.graph.node[0].input[0] = "absent"
    with pytest.raises(UnsupportedError, match="GP310"):
        model.analysis(fail)


def test_errors_with_an_id_pass():
    def refuse(_):
        raise UsageError("GP211", "no")

    with pytest.raises(UsageError, match="GP211"):
        parse_model(RELU).analysis(refuse)
