"""Trials in a process of their own, which may crash."""

import openvino
import pytest

from graphpass.targets.worker import run_python, run_worker
from graphpass.testing import parse_model

TEXT = "%x = Parameter : f32[1, 4]\n%y = Relu(%x)\nResult(%y) {name=y}"


def test_python_returns_what_it_writes():
    code = (
        "import json, sys\n*rest, where = sys.argv[1:]\nwith open(where, 'w') as file: json.dump({'rest': rest}, file)"
    )
    assert run_python(code, ["a", "b"]) == {"rest": ["a", "b"]}


@pytest.mark.parametrize(
    ("code", "ended"),
    [
        ("raise SystemExit(3)", "its process ended with 3"),
        ("import os; os.abort()", "its process ended with -6"),
        ("x = 1 / 0", "its process ended with 1: ZeroDivisionError: division by zero"),
    ],
)
def test_the_end_of_a_process_without_an_answer_is_reported(code, ended):
    assert run_python(code, []) == ended


def test_a_worker_reads_the_model_and_fills_an_answer():
    code = """
def run():
    compiled = core.compile_model(core.read_model(path), "CPU", exact)
    answer["sum"] = float(compiled([numpy.array([[-1, 0, 2, 3]], "f4")])[0].sum())
"""
    done = run_worker(code, parse_model(TEXT, "openvino"), "tried it")
    version = openvino.__version__.split("-")[0]
    assert (done.tried, done.refused, done.refusal) == (f"tried it, openvino {version}", None, None)
    assert done.answer == {"version": version, "sum": 5.0}


def test_an_error_of_the_runtime_is_a_refusal():
    code = """
def run():
    answer["before"] = 1
    raise RuntimeError("Exception from src/a.cpp:1:\\nCheck 'x' failed at src/b.cpp:2:\\nno kernel of this\\n")
"""
    done = run_worker(code, parse_model(TEXT, "openvino"), "tried it")
    assert (done.refused, done.answer["before"]) == ("no kernel of this", 1)
    assert done.refusal.refused == "no kernel of this"


def test_a_crash_is_a_refusal_without_an_answer():
    done = run_worker("def run():\n    import os\n    os.abort()", parse_model(TEXT, "openvino"), "tried it")
    assert (done.tried, done.refused, done.answer) == ("tried it", "its process ended with -6", {})
