"""Cases shrink step by step as long as they fail."""

from __future__ import annotations

from graphpass.jobs.reduce.failing import Failing
from graphpass.jobs.reduce.oracle import Oracle
from graphpass.jobs.reduce.reducer import Reducer

TEXT = """// RUN: fuse-functions
// DIALECT: onnx 21
// KEEPS: different
%x = Parameter : f32[n, 12]
%z = Parameter : f32[n, 12]
%a = Add(%x, 1.0)
%b = Tanh(%a)
%c = Exp(%b)
%d = Add(%c, %z)
%e = Relu(%d)
Result(%e) {name=e}
Result(%b) {name=b}
"""


class FailsWithExp(Oracle):
    """Fails for cases with an Exp of at least two columns."""

    def failure(self, case):
        model = case.model()
        wide = [node for node in model.graph.of_op("Exp") if (node.outputs[0].shape or (None, 0))[1] != 1]
        return "it has an Exp" if wide else None


def reduced(seconds: float = 60) -> tuple[Reducer, list[str]]:
    lines: list[str] = []
    reducer = Reducer(Failing.parse(TEXT), FailsWithExp(), seconds, lines.append)
    reducer.run()
    return reducer, lines


def test_only_what_fails_is_left():
    reducer, lines = reduced()
    text = str(reducer.case)
    assert reducer.case.nodes == 1
    assert "Exp(" in text
    assert "%z" not in text
    assert "12" not in text
    assert lines[0].startswith("ends: ")
    assert reducer.trials > 5


def test_a_search_without_time_returns_the_case_as_it_is():
    reducer, lines = reduced(0)
    assert lines == []
    assert reducer.case.nodes == 5
