import pytest
from support.commands import in_process
from support.plugins import distribution, plugin_paths

import graphpass
from graphpass.engine.options import documentation
from graphpass.reports.text import spoken


def test_passes_lists_every_pass_with_its_options(capfd):
    done = in_process(capfd, "passes")
    assert (done.code, done.err) == (0, "")
    heads = [line for line in done.out.splitlines() if not line.startswith(" ")]
    assert heads == list(graphpass.pass_names())
    assert "beam-index  bool  default true  " in done.out


def test_a_broken_plugin_is_listed_with_the_reason(capfd, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(
        distribution(
            tmp_path,
            "broken-plugin",
            {"graphpass.passes": {"broken": "no_such:X"}, "graphpass.targets": {"torn": "no_such:Y"}},
        )
    )
    done = in_process(capfd, "passes")
    assert done.code == 0
    assert (
        "broken\n    cannot be used: GP221: pass 'broken' of distribution broken-plugin cannot be imported" in done.out
    )
    assert "make-stateful" in done.out
    done = in_process(capfd, "targets")
    assert done.code == 0
    assert "torn\n    cannot be used: GP221" in done.out
    assert in_process(capfd, "--help").code == 0
    assert in_process(capfd, "explain", "broken").code == 2
    assert in_process(capfd, "explain", "make-stateful").code == 0


def test_third_parties_are_listed(capfd, tmp_path, monkeypatch):
    for path in plugin_paths("sample_plugin", tmp_path):
        monkeypatch.syspath_prepend(path)
    done = in_process(capfd, "passes")
    assert (
        "sample-scale\n    Multiply the first output by a factor.\n      factor  float  default 1.0  Number to"
        in done.out
    )
    assert "sample\n    Somebody's own runtime." in in_process(capfd, "targets").out


def test_a_duplicate_name_is_reported(capfd, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(distribution(tmp_path, "twin", {"graphpass.passes": {"make-stateful": "twin:X"}}))
    done = in_process(capfd, "passes")
    assert done.code == 2
    assert "GP220" in done.err
    assert "distribution twin (twin:X)" in done.err
    assert in_process(capfd, "explain", "to-openvino").code == 0


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


def test_targets_are_listed(capfd):
    done = in_process(capfd, "targets")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("cpu\n    OpenVINO on CPU")
    assert "writes openvino_model.xml; contract: OpenVINO IR, stateful" in done.out
