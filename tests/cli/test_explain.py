"""graphpass explain: a pass with its options and conditions, or an error."""

import pytest
from support.commands import in_process

import graphpass
from graphpass.engine.options import documentation
from graphpass.reports.text import spoken


@pytest.mark.parametrize("name", graphpass.pass_names())
def test_explain_prints_the_whole_docstring(capfd, name):
    done = in_process(capfd, "explain", name)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(name)
    assert spoken(documentation(graphpass.get_pass(name))) in done.out
    assert "Before:" in done.out
    assert "After:" in done.out


def test_explain_prints_preconditions(capfd):
    out = in_process(capfd, "explain", "make-stateful").out
    assert out.splitlines()[:5] == [
        "make-stateful{beam-index=true}",
        "",
        "accepts   openvino models",
        "requires  has caches, stateless",
        "ensures   stateful",
    ]


def test_explain_prints_an_error(capfd):
    done = in_process(capfd, "explain", "gp203")
    assert done.code == 0
    assert done.out.startswith("GP203: The result would overwrite")
    assert in_process(capfd, "explain", "GP999").code == 2


def test_explain_suggests_a_known_name(capfd):
    done = in_process(capfd, "explain", "make-statefull")
    assert done.code == 2
    assert done.err.startswith("error: GP211: unknown pass 'make-statefull'\nhint: did you mean make-stateful?")
    done = in_process(capfd, "explain", "cpu")
    assert (done.code, done.out) == (2, "")
    assert done.err == "error: GP211: 'cpu' is a target, not a pass\nhint: graphpass targets describes it\n"
