"""Failures that are the same as that of the first case, and others."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

import graphpass
from graphpass.jobs.reduce import oracle as oracle_module
from graphpass.jobs.reduce.failing import Failing
from graphpass.jobs.reduce.oracle import Oracle
from graphpass.passes.devices import fuse_functions

TEXT = """// RUN: fuse-functions
// DIALECT: onnx 21
// KEEPS: {}
%x = Parameter : f32[n, 12]
%gate = Sigmoid(%x)
%y = Multiply(%x, %gate)
Result(%y) {{name=y}}
"""


def case(keeps: str, text: str = TEXT) -> Failing:
    return Failing.parse(text.format(keeps))


def test_errors_are_kept_by_id():
    oracle, failing = Oracle(), replace(case("GP301"), passes=graphpass.parse("make-stateful"))
    assert oracle.failure(failing).startswith("GP301: pass make-stateful: ")
    assert oracle.failure(replace(failing, keeps="GP302")) is None
    assert oracle.seen.startswith("it ends with GP301: ")
    assert oracle.failure(case("GP301")) is None
    assert oracle.seen.startswith("it ends without error after ")


def test_errors_of_another_cause_are_others(monkeypatch):
    def fails_with(error):
        def rewrite(*_):
            raise error

        monkeypatch.setattr(fuse_functions, "rewrite", rewrite)

    oracle = Oracle()
    fails_with(IndexError("a"))
    assert oracle.failure(case("GP401")).startswith("GP401: ")
    fails_with(IndexError("b"))
    assert oracle.failure(case("GP401")) is not None
    fails_with(KeyError("a"))
    assert oracle.failure(case("GP401")) is None
    assert Oracle().failure(case("GP401")) is not None


def test_different_outputs_are_compared_on_arrays(monkeypatch):
    assert Oracle().failure(case("different")) is None
    right = fuse_functions.rewrite

    def rewrite(rewriter, rules):
        counts = right(rewriter, rules)
        result = rewriter.graph.writes["y"]
        write = rewriter.under("wrong")
        rewriter.redirect(result, 0, write.op("Multiply", result.source(), write.number(1.1, "f32")))
        return counts

    monkeypatch.setattr(fuse_functions, "rewrite", rewrite)
    assert Oracle().failure(case("different")).startswith("output y[0, 0]: reference ")
    assert Oracle().failure(case("GP404")).startswith("output y[0, 0]: reference ")
    assert Oracle().failure(case("GP312")) is None


def test_slow_pipelines_are_those_of_half_the_time(monkeypatch):
    times = iter([0.0, 8.0, 10.0, 15.0, 20.0, 23.0])
    monkeypatch.setattr(oracle_module, "time", SimpleNamespace(perf_counter=lambda: next(times)))
    oracle = Oracle()
    assert [oracle.failure(case("slow")) for _ in range(3)] == ["it takes 8.0 s", "it takes 5.0 s", None]


@pytest.mark.parametrize("missing", ["RUN", "DIALECT", "KEEPS"])
def test_cases_state_pipeline_dialect_and_failure(missing):
    with pytest.raises(graphpass.UsageError, match=f"expected a line // {missing}:") as error:
        case("slow", TEXT.replace(f"// {missing}: ", "// "))
    assert error.value.id == "GP270"
