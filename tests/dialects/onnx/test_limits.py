"""Models that become too large when their functions are expanded, or nest too deep."""

from pathlib import Path

import pytest
from onnx import helper

from graphpass.dialects.onnx.limits import check_limits
from graphpass.errors import ReadError

FILE = Path("m.onnx")


def function(name, *calls):
    nodes = [helper.make_node(op, ["x"], ["y"], domain="own" if op.startswith("f") else "") for op in calls]
    return helper.make_function("own", name, ["x"], ["y"], nodes, [helper.make_opsetid("", 21)])


def model(*nodes, functions=(), version=21):
    graph = helper.make_graph(list(nodes), "g", [], [])
    return helper.make_model(graph, functions=list(functions), opset_imports=[helper.make_opsetid("", version)])


def nested(depth):
    node = helper.make_node("Relu", ["x"], ["y"])
    for _ in range(depth):
        graph = helper.make_graph([node], "b", [], [])
        node = helper.make_node("If", ["c"], ["y"], then_branch=graph, else_branch=helper.make_graph([], "e", [], []))
    return node


CALL = helper.make_node("f0", ["x"], ["y"], domain="own")
#: Each function calls the next ten times.
TENFOLD = [function(f"f{level}", *[f"f{level + 1}"] * 10) for level in range(6)] + [function("f6", "Relu")]


@pytest.mark.parametrize(
    "good",
    [
        model(nested(16)),
        model(version=10_000),
        model(CALL, functions=[function("f0", "f1", "f1"), function("f1", "Relu")]),
        model(helper.make_node("f0", ["x"], ["y"]), functions=[function("f0", "Relu")]),
    ],
)
def test_models_within_the_limits(good):
    check_limits(good, FILE)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (model(nested(17)), "nests bodies of nodes deeper than 16"),
        (model(version=10_001), "imports version 10001 of the operators of 'ai.onnx'"),
        (model(version=-1), "imports version -1"),
        (model(CALL, functions=[function("f0", "f0")]), "the function 'f0' calls itself"),
        (model(CALL, functions=[function("f0", "f1"), function("f1", "f0")]), "calls itself"),
        (model(CALL, functions=TENFOLD), "once its functions are expanded"),
    ],
)
def test_other_models_are_refused(bad, reason):
    with pytest.raises(ReadError, match=f"GP119: .*{reason}"):
        check_limits(bad, FILE)
