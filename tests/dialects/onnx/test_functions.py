"""Local functions that runtimes have no kernels for."""

import pytest
from onnx import helper

from graphpass.dialects.onnx.functions import own_functions


@pytest.mark.parametrize(("domain", "own"), [("mine", [("mine", "Twice")]), ("com.microsoft", []), ("", [])])
def test_functions_of_known_domains_are_fallbacks(domain, own):
    body = helper.make_node("Add", ["x", "x"], ["y"])
    twice = helper.make_function(domain, "Twice", ["x"], ["y"], [body], [helper.make_opsetid("", 18)])
    assert own_functions(helper.make_model(helper.make_graph([], "empty", [], []), functions=[twice])) == own
