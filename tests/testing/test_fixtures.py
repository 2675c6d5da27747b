"""Fixtures run a test for each dialect and family."""

from graphpass.testing import FAMILIES

pytest_plugins = ["pytester"]

TESTS = """
def test_dialects(dialect):
    assert dialect in {"onnx", "openvino"}

def test_families(family):
    from graphpass.testing import FAMILIES
    assert family in FAMILIES

def test_models(tiny, dialect):
    assert tiny.dialect == dialect
"""


def test_tests_run_for_each_dialect_and_family(pytester):
    pytester.makepyfile(TESTS)
    done = pytester.runpytest_inprocess("-p", "graphpass.testing.fixtures", "-q", "-k", "dialects or families or llama")
    dialects, families = 2, len(FAMILIES)
    done.assert_outcomes(passed=dialects + families + dialects, deselected=dialects * (families - 1))
